"""``measure.starts``: visits are spread over worker groups of their own, one start after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raybench.driver.time_budget import TimeBudget
from raybench.errors import Interrupted
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import GroupInfo
from raybench.records.record import TrialRecord
from tests.support.planted import FakeRunner
from tests.unit.runs import ClockRunner, Failing, MemoryStore, Watched, run
from tests.unit.studies import study

GRID = {"method": "grid"}


def planned(starts: int = 3, visits: int = 3, **fields: Any) -> Plan:
    given = {"knobs": {"batch_size": [512, 32]}, "search": GRID} | fields
    return make_plan(
        study(measure={"starts": starts, "visits": visits}, **given), Resources("cpu", 2, "a CPU")
    )


def places(records: list[TrialRecord]) -> list[tuple[int, int, int]]:
    """Visit, world size and batch of each trial."""
    return [
        (each.request.visit, each.config.world_size, each.config.setting.batch_size)
        for each in records
        if each.request.kind == "steps"
    ]


def groups(records: list[TrialRecord]) -> dict[int, set[int]]:
    """The worker groups that served each start."""
    found: dict[int, set[int]] = {}
    for record in records:
        if record.request.kind == "steps" and record.request.role == "scaling":
            found.setdefault(record.request.start, set()).add(record.group)
    return found


def test_all_visits_of_one_start_then_its_group_ends() -> None:
    _, store, runner = run(planned())
    assert places(store.records[:4]) == [(0, 2, 512), (0, 1, 512), (0, 2, 32), (0, 1, 32)]
    assert groups(store.records) == {0: {1}, 1: {2}, 2: {3}}
    visits = [visit for visit, *_ in places(store.records)]
    assert visits == sorted(visits)
    assert runner.num_starts == 3


def test_a_search_is_served_by_the_group_of_the_first_start() -> None:
    _, store, runner = run(planned(starts=2, search={"method": "optuna", "trials": 2}))
    assert {record.group for record in store.records if record.request.role == "search"} == {1}
    assert groups(store.records) == {0: {1}, 1: {2}}
    assert runner.num_starts == 2


def test_process_knobs_have_groups_of_their_own_in_every_start() -> None:
    _, store, _ = run(planned(starts=2, environment={"A": ["1", "2"]}))
    found = groups(store.records)
    assert found[0].isdisjoint(found[1])
    for record in store.records:
        same = [each for each in store.records if each.group == record.group]
        assert {each.config.environment["A"] for each in same} == {record.config.environment["A"]}


def test_more_starts_and_visits_on_resume_measure_only_what_is_new() -> None:
    _, store, _ = run(planned(starts=1))
    known = len(store.records)
    _, store, runner = run(planned(starts=3), store=store)
    new = store.records[known:]
    assert {each.request.start for each in new} == {1, 2}
    assert {each.request.visit for each in new} == {1, 2}
    assert runner.num_starts == 2
    assert groups(store.records) == {0: {1}, 1: {2}, 2: {3}}  # counted on, though the runner is a new one
    assert len({each.trial_id for each in store.records}) == len(store.records)


def test_an_interrupted_start_goes_on_in_a_group_of_its_own() -> None:
    store = MemoryStore()
    with pytest.raises(Interrupted):
        run(planned(), Failing(5, Interrupted("SIGTERM")), store)
    assert store.records[-1].request.start == 1
    _, store, runner = run(planned(), store=store)
    assert sorted(places(store.records)) == sorted(places(run(planned())[1].records))
    assert runner.num_starts == 2  # the rest of start 1, and start 2


def test_a_trial_that_is_tried_again_shares_no_group_with_another_start() -> None:
    _, store, _ = run(planned(starts=2), FailingOnce(2))
    assert [record.state for record in store.records].count("crashed") == 1
    known = len(store.records)
    _, store, _ = run(planned(starts=3), store=store, retry=frozenset({"crashed"}))
    again, *rest = store.records[known:]
    assert again.request.start == 0
    assert again.group not in {record.group for record in rest}


class FailingOnce(FakeRunner):
    """The trial of one number crashes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.fail = lambda request: ("crashed", "x") if len(self.requests) == number else None


class SlowToStart(ClockRunner):
    """A worker group needs 100 s, a trial 10."""

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        before = self.num_starts
        group = super().start(world_size, environment, anew=anew)
        self.now += 100.0 * (self.num_starts - before)
        return group


@pytest.mark.parametrize(("seconds", "reached"), [(165, 1), (270, 2), (310, 2), (480, 3)])
def test_the_time_budget_knows_what_a_group_takes(
    monkeypatch: pytest.MonkeyPatch, seconds: float, reached: int
) -> None:
    """Four trials and a group are 140 s a start."""
    runner = SlowToStart(monkeypatch)
    end = runner.now + seconds
    executed, store, _ = run(planned(), runner, budget=TimeBudget(end))
    assert runner.now <= end
    assert {each.request.start for each in store.records} == set(range(reached))
    if reached < 3:
        assert {each.start for each in executed.not_reached[0].requests} >= {reached}
    else:
        assert executed.not_reached == []


def test_the_groups_of_variables_are_shuffled_in_every_start() -> None:
    orders = set()
    for seed in range(4):
        plan = planned(starts=3, seed=seed, environment={"A": ["1", "2", "3"]}, knobs={"batch_size": 32})
        _, store, _ = run(plan)
        last = [each.config.environment["A"] for each in store.records if each.request.start]
        orders.add(tuple(dict.fromkeys(last)))
    assert len(orders) > 1


def test_what_a_start_takes_is_told_without_the_wait_for_places(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(ClockRunner):
        """Groups start in 10 s, once others have given back the places 30 s later."""

        def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
            before = self.num_starts
            group = super().start(world_size, environment, anew=anew)
            if self.num_starts == before:
                return group
            self.now += 40.0
            return replace(group, waited_s=30.0)

    class Told(Watched):
        def group(self, num_workers: int, seconds: float | None) -> None:
            told.append(seconds)

    told = list[float | None]()
    session, _, _ = run(planned(2), Busy(monkeypatch), watcher=Told())
    assert [seconds for seconds in told if seconds] == pytest.approx([10.0, 10.0])
    assert session.budget.start_s == pytest.approx(10.0)
