"""When a running worker group serves on, and when new processes are started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raybench.errors import GroupLostError, Interrupted
from raybench.launch import group_runner, signals
from raybench.launch.cluster import Cluster
from raybench.launch.group_runner import WorkerGroupRunner
from raybench.machine.host import DeviceKind, WorkerNeeds
from raybench.records.messages import GroupInfo, Member, Outcome
from raybench.spec.study import MeasureSpec
from tests.unit.studies import request

CLUSTER = SimpleNamespace(
    connect=lambda: None,
    refuse_unplaceable=lambda world_size, needs: None,
    await_places=lambda wanted, needs, limit_s: None,
    await_free=lambda wanted, needs, limit_s: None,
)


class Group:
    """A worker group without processes."""

    def __init__(self, world_size: int, environment: dict[str, str], number: int, **rest: Any) -> None:
        self.wants, self.number, self.alive = (world_size, dict(environment)), number, True

    @property
    def info(self) -> GroupInfo:
        return GroupInfo((), self.number)

    def await_ready(self, still_fits: Any) -> GroupInfo:
        return self.info

    def stop(self, *, at_once: bool = False) -> None:
        self.alive = False


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WorkerGroupRunner:
    monkeypatch.setattr(group_runner, "WorkerGroup", Group)
    return WorkerGroupRunner(cast(Cluster, CLUSTER), needs=WorkerNeeds("cpu", 1), storage=tmp_path)


def test_just_the_same_group_serves_on_unless_it_is_asked_for_anew(runner: WorkerGroupRunner) -> None:
    assert runner.start(2, {}).number == runner.start(2, {}).number == 1
    assert runner.start(2, {"A": "1"}).number == 2
    first = runner._group
    assert runner.start(2, {"A": "1"}, anew=True).number == 3
    assert first is not None
    assert not first.alive  # its processes are gone before new ones start
    assert runner.start(2, {"A": "1"}).number == 3


class NeverReady(Group):
    """A group whose workers do not answer, and whose Ray Train run goes on waiting for a place."""

    def await_ready(self, still_fits: Any) -> GroupInfo:
        raise GroupLostError("no worker answered in 180 s")


def test_a_group_that_did_not_start_is_not_taken_for_a_running_one(
    runner: WorkerGroupRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_runner, "WorkerGroup", NeverReady)
    for _ in range(2):
        with pytest.raises(GroupLostError, match="no worker answered"):
            runner.start(2, {})
    monkeypatch.setattr(group_runner, "WorkerGroup", Group)
    assert runner.start(2, {}).number == 3


class Serving(Group):
    """A group in which every trial ends at once."""

    @property
    def info(self) -> GroupInfo:
        members = tuple(Member(rank, "node0", "localhost", 0, "a device") for rank in range(self.wants[0]))
        return GroupInfo(members, self.number)

    def post(self, *_: Any) -> None:
        """Nothing is to be waited for."""

    def outcome(self) -> Outcome:
        return Outcome("complete", 1.0, ranks=(0, 1), group=self.number)


@pytest.mark.parametrize(("device", "served_on"), [("cuda", False), ("cpu", True)])
def test_processes_in_which_a_profiler_stays_serve_no_further_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: DeviceKind, served_on: bool
) -> None:
    monkeypatch.setattr(group_runner, "WorkerGroup", Serving)
    runner = WorkerGroupRunner(cast(Cluster, CLUSTER), needs=WorkerNeeds(device, 1), storage=tmp_path)
    for profile, alive in ((False, True), (True, served_on)):
        runner.start(2, {})
        group = runner._group
        asked = request(measure=MeasureSpec(profile=profile))
        outcome = runner.run(asked, lambda progress: None)
        assert (outcome.state, outcome.group, outcome.ranks) == ("complete", 1, (0, 1))
        assert group is not None
        assert group.alive == alive
    assert runner.start(2, {}).number == (1 if served_on else 2)


class InterruptedAtItsEnd(Serving):
    """A group that ends with its trial; Ctrl-C comes while its processes are waited for."""

    def outcome(self) -> Outcome:
        return Outcome("oom", 1.0, "no memory", ranks=(0, 1), group=self.number, ends_group=True)

    def stop(self, *, at_once: bool = False) -> None:
        raise Interrupted("SIGINT")


def test_how_a_trial_ended_is_kept_where_an_interrupt_comes_while_its_group_ends(
    runner: WorkerGroupRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_runner, "WorkerGroup", InterruptedAtItsEnd)
    runner.start(2, {})
    assert runner.run(request(), lambda progress: None).state == "oom"
    assert runner._group is not None  # for ``abandon``
    with pytest.raises(Interrupted, match="SIGINT"):
        signals.check()


def test_a_group_tells_how_long_its_places_were_waited_for(
    runner: WorkerGroupRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]

    def wait(wanted: int, needs: WorkerNeeds, limit_s: float) -> None:
        now[0] += 30.0

    monkeypatch.setattr(group_runner, "monotonic", lambda: now[0])
    monkeypatch.setattr(CLUSTER, "await_free", wait)
    assert runner.start(2, {}).waited_s == 30.0
    assert runner.start(2, {}).waited_s == 0.0  # it runs already
