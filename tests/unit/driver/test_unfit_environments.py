"""Variables with which no worker group starts: they cost their own trials, and no others."""

from __future__ import annotations

import pytest

from raybench.driver.groups import MAX_LOST_STARTS
from raybench.errors import GroupLostError
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import GroupInfo, OnProgress, Outcome
from raybench.records.requests import TrialRequest
from tests.support.planted import FakeRunner
from tests.unit.runs import QUIET_ENOUGH, MemoryStore, run
from tests.unit.studies import study

NAME, LOST = "GLOO_SOCKET_IFNAME", "the worker group did not start: rank 0: no such interface"


class Unfit(FakeRunner):
    """No group starts with ``eth77``; with any once ``all_end``, when such a one was asked for."""

    def __init__(self, *, all_end: bool = False, first: int = 0) -> None:
        super().__init__(noise=QUIET_ENOUGH)
        self.all_end, self.first, self.tries = all_end, first, 0

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        if environment[NAME] == "eth77" and len(self.requests) >= self.first:
            self.tries += 1
            raise GroupLostError(LOST)
        if self.all_end and self.tries:
            raise GroupLostError("the head of the cluster is gone")
        return super().start(world_size, environment, anew=anew)


class UnfitProcesses(FakeRunner):
    """Trials with processes of their own, which with ``eth77`` die before they begin."""

    def __init__(self) -> None:
        super().__init__(noise=QUIET_ENOUGH)
        self.tries = 0

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        if request.config.environment[NAME] != "eth77":
            return super().run(request, on_progress)
        self.tries += 1
        raise GroupLostError(LOST)


def planned(*interfaces: str) -> Plan:
    spec = study(
        knobs={"batch_size": [32, 64]}, search={"method": "grid"}, environment={NAME: list(interfaces)}
    )
    return make_plan(spec, Resources("cpu", 2, "a CPU"))


def states(store: MemoryStore) -> dict[str, set[str]]:
    """In which its trials ended, by the interface."""
    found = dict[str, set[str]]()
    for record in store.records:
        found.setdefault(record.config.environment[NAME], set()).add(record.state)
    return found


@pytest.mark.parametrize("kind", [Unfit, UnfitProcesses], ids=["a group", "each its own processes"])
def test_the_trials_of_the_other_variables_are_measured(
    kind: type[Unfit | UnfitProcesses],
) -> None:
    plan, runner = planned("eth0", "eth77", "eth1"), kind()
    _, store, _ = run(plan, runner)
    assert states(store) == {"eth0": {"complete"}, "eth77": {"crashed"}, "eth1": {"complete"}}
    crashed = [record for record in store.records if record.state == "crashed"]
    assert len(crashed) == len(plan.trials()) / 3  # each of them has its record, and none is asked again
    assert {record.reason for record in crashed} == {
        f"with {NAME}=eth77 no worker group starts, with other variables one does: {LOST}"
    }
    if isinstance(runner, Unfit):
        assert runner.tries == MAX_LOST_STARTS  # in all, not for each trial


@pytest.mark.parametrize(
    ("runner", "interfaces"),
    [
        (Unfit(all_end=True), ("eth0", "eth77")),
        (Unfit(first=6), ("eth0", "eth77")),  # such a group has run: it is not the variable
        (Unfit(), ("eth77", "eth0")),  # the default's
        (Unfit(), ("eth77",)),  # there are no others
    ],
    ids=["nothing starts any more", "it did start", "the default", "the only ones"],
)
def test_what_need_not_be_the_variables_ends_the_study(runner: Unfit, interfaces: tuple[str, ...]) -> None:
    store = MemoryStore()
    with pytest.raises(GroupLostError, match="no such interface"):
        run(planned(*interfaces), runner, store)
    assert runner.tries == MAX_LOST_STARTS
    assert all(record.state == "complete" for record in store.records)


def test_a_run_that_goes_on_knows_which_variables_have_served() -> None:
    plan, store = planned("eth77", "eth0"), MemoryStore()
    run(plan, FakeRunner(noise=QUIET_ENOUGH), store)
    store.records = [each for each in store.records if each.config.environment[NAME] == "eth0"]
    run(plan, Unfit(), store)
    assert states(store) == {"eth0": {"complete"}, "eth77": {"crashed"}}
