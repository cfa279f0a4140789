"""Several trials under way at once: the same records as one after the other, and nothing begun too late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from raybench.driver import time_budget as budget
from raybench.driver.time_budget import TimeBudget
from raybench.errors import GroupLostError, Interrupted
from raybench.launch.runner import Submitted
from raybench.machine.host import Resources
from raybench.plan.notes import NoteKind
from raybench.plan.resolve import make_plan
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.messages import OnProgress, Outcome
from raybench.records.requests import TrialRequest
from raybench.records.results import StepsResult
from tests.support.planted import FakeRunner
from tests.unit.runs import QUIET_ENOUGH, MemoryStore, run
from tests.unit.studies import study

KNOBS = {"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1, 25]}
GRID = {"method": "grid"}
SEARCH = {"method": "optuna", "trials": 6}
TRAINED = {"workload": {"name": "vision", "input": "real"}, "training": {"epochs": 2, "seeds": 3}}


def planned(**fields: object) -> Plan:
    given = {"knobs": KNOBS, "search": GRID, "measure": {"half_width": 0.02}} | fields
    return make_plan(study(**given), Resources("cpu", 2, "a CPU"))


def first_visits(store: MemoryStore) -> list[str]:
    """The ids of what a grid measures before default and best are visited again."""
    return sorted(
        each.trial_id for each in store.records if each.request.role == "scaling" and not each.request.visit
    )


def side_by_side(capacity: int = 3, **fields: object) -> FakeRunner:
    return FakeRunner(noise=QUIET_ENOUGH, capacity=capacity, **fields)


def ids(store: MemoryStore, *roles: str) -> list[str]:
    return [record.trial_id for record in store.records if not roles or record.request.role in roles]


@pytest.mark.parametrize("fields", [{}, TRAINED], ids=["a grid", "a grid and trainings"])
def test_the_same_trials_each_once(fields: dict[str, object]) -> None:
    plan = planned(**fields)
    alone, several = side_by_side(1), side_by_side()
    _, one_by_one, _ = run(plan, alone)
    _, at_once, _ = run(plan, several)
    assert (alone.most_at_once, several.most_at_once) == (1, 3)
    asked = [trial.request.trial_id for trial in plan.trials()]
    assert ids(one_by_one, "scaling")[: len(asked)] == asked
    trainings = [request.trial_id for request in training_requests(plan)]
    for store in (one_by_one, at_once):
        assert set(asked) < set(ids(store, "scaling"))  # then default and best are visited again
        assert sorted(ids(store, "training")) == sorted(trainings)
        assert len(set(ids(store))) == len(store.records)
    assert [each.trial_id for each in several.requests][: len(asked)] == asked  # begun in the plan's order


def test_records_come_in_the_order_in_which_trials_end() -> None:
    def slow(request: TrialRequest) -> tuple[str, str] | None:  # a failure takes a tenth of a second
        return None if request == first else ("oom", "planted")

    plan = planned(measure={"half_width": 0.02, "visits": 1})
    first = plan.trials()[0].request
    _, store, runner = run(plan, side_by_side(fail=slow))
    assert runner.requests[0] == first
    assert store.records[-1].trial_id == first.trial_id
    assert {record.state for record in store.records[:-1]} == {"oom"}


def test_suggestions_under_way_are_not_suggested_again() -> None:
    plan = planned(search=SEARCH)
    executed, store, runner = run(plan, side_by_side())
    assert runner.most_at_once == 3
    searched = [record for record in store.records if record.request.role == "search"]
    assert len({record.trial_id for record in searched}) == len(searched) == 5
    assert len({record.suggestion for record in searched}) == 5
    assert [count for _, count, *_ in executed.watcher.trials[2:7]] == list(range(1, 6))


def test_a_search_larger_than_its_space_ends_with_those_under_way() -> None:
    _, store, _ = run(planned(search=SEARCH, knobs={"batch_size": [32, 64]}), side_by_side())
    assert len(ids(store, "search")) == 1


def test_a_failure_costs_its_own_trial() -> None:
    plan = planned()
    lost = plan.trials()[1].request
    _, store, _ = run(plan, side_by_side(fail=lambda each: ("crashed", "x") if each == lost else None))
    states = {record.trial_id: record.state for record in store.records}
    assert states.pop(lost.trial_id) == "crashed"
    assert set(states.values()) == {"complete"}
    assert len(states) == len(ids(store)) - 1


class LosesSome(FakeRunner):
    """The processes of some trials die before these begin, each once."""

    def __init__(self, lost: Sequence[int]) -> None:
        super().__init__(noise=QUIET_ENOUGH, capacity=3)
        self.lost, self.num_submitted = lost, 0

    def submit(self, request: TrialRequest, on_progress: OnProgress) -> Submitted:
        submitted = super().submit(request, on_progress)
        if self.num_submitted in self.lost:
            del self._under_way[submitted]
            submitted.ended = GroupLostError("its process died")
        self.num_submitted += 1
        return submitted


def test_a_trial_whose_processes_died_before_it_began_is_asked_again() -> None:
    plan = planned()
    _, store, runner = run(plan, LosesSome([0, 2, 4]))
    assert first_visits(store) == sorted(trial.request.trial_id for trial in plan.trials())
    assert {record.state for record in store.records} == {"complete"}
    assert len(runner.requests) == len(store.records) + 3


class Stops(FakeRunner):
    """Interrupted while the trials after the ``after``-th record are waited for."""

    def __init__(self, after: int) -> None:
        super().__init__(noise=QUIET_ENOUGH, capacity=3)
        self.after = after

    def wait(self, submitted: Sequence[Submitted]) -> Submitted:
        if self.after == 0:
            raise Interrupted("SIGINT")
        self.after -= 1
        return super().wait(submitted)


@pytest.mark.parametrize("search", [GRID, SEARCH], ids=["grid", "optuna"])
@pytest.mark.parametrize("after", [0, 1, 4, 8])
def test_nothing_is_begun_after_an_interrupt_and_the_rest_is_measured_on_resume(
    search: dict[str, object], after: int
) -> None:
    plan, store, stopped = planned(search=search), MemoryStore(), Stops(after)
    with pytest.raises(Interrupted):
        run(plan, stopped, store)
    assert len(store.records) == after
    assert len(stopped.requests) <= after + 3
    known = ids(store)
    _, store, _ = run(plan, side_by_side(), store)
    assert ids(store)[:after] == known
    assert len(set(ids(store))) == len(store.records)
    if search is GRID:
        assert first_visits(store) == sorted(trial.request.trial_id for trial in plan.trials())
    else:
        assert len(ids(store, "search")) == 5


class Clocked(FakeRunner):
    """Trials take 10 s, less where their rounds are cut short, and processes of their own 15 s beside."""

    PROCESSES_S = 15.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capacity: int = 3) -> None:
        super().__init__(noise=QUIET_ENOUGH, capacity=capacity)
        self._now_s = 1000.0
        monkeypatch.setattr(budget, "monotonic", lambda: self._now_s)

    @property
    def now_s(self) -> float:
        return self._now_s

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        outcome = super().run(request, on_progress)
        rounds_s = min(7.0, request.measure.max_seconds) if request.kind == "steps" else 7.0
        told: dict[str, Any] = {"wall_time_s": 3.0 + rounds_s}
        if isinstance(outcome.result, StepsResult):
            told["result"] = outcome.result.model_copy(update={"measure_s": rounds_s})
        return Outcome(**{**vars(outcome), **told})

    def submit(self, request: TrialRequest, on_progress: OnProgress) -> Submitted:
        submitted = super().submit(request, on_progress)
        ends_s, outcome = self._under_way[submitted]
        self._under_way[submitted] = (ends_s + self.PROCESSES_S, outcome)
        submitted.processes_s = self.PROCESSES_S
        return submitted


def test_side_by_side_takes_a_third_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Clocked(monkeypatch)
    run(planned(), runner, budget=TimeBudget(runner.now_s + 10_000))
    assert runner.now_s - 1000 <= (len(runner.requests) / 3 + 2) * 25


@pytest.mark.parametrize("search", [GRID, {"method": "optuna", "trials": 9}], ids=["grid", "optuna"])
@pytest.mark.parametrize("seconds", [20, 60, 90, 130, 170, 1000])
def test_the_deadline_is_kept_and_what_was_not_reached_is_named(
    monkeypatch: pytest.MonkeyPatch, search: dict[str, object], seconds: float
) -> None:
    plan = planned(search=search)
    runner = Clocked(monkeypatch)
    end_s = runner.now_s + seconds
    executed, store, _ = run(plan, runner, budget=TimeBudget(end_s))
    assert sorted(ids(store)) == sorted(each.trial_id for each in runner.requests)
    if store.records and seconds > 20:  # of the first trials nothing is known beforehand
        assert runner.now_s <= end_s
    if seconds == 1000:
        assert executed.not_reached == []
    elif seconds <= 90:
        assert executed.not_reached


def test_trainings_side_by_side_are_told_of() -> None:
    executed, _, runner = run(planned(**TRAINED, knobs={"batch_size": 32}), side_by_side(2))
    assert runner.most_at_once == 2
    assert [(note.kind, note.number) for note in executed.notes] == [(NoteKind.SIDE_BY_SIDE, 2)]
    executed, *_ = run(planned(**TRAINED, knobs={"batch_size": 32}))
    assert executed.notes == []


class BySize(FakeRunner):
    """Room for two trials on one device, or for one on two."""

    def __init__(self) -> None:
        super().__init__(noise=QUIET_ENOUGH, capacity=2)

    def capacity(self, kind: str, world_size: int, *, spread: bool = False) -> int:
        return 2 // world_size

    def submit(self, request: TrialRequest, on_progress: OnProgress) -> Submitted:
        submitted = super().submit(request, on_progress)
        assert sum(each.request.config.world_size for each in self._under_way) <= 2
        return submitted


def test_the_largest_trial_under_way_decides_how_many_there_may_be() -> None:
    plan = planned()
    _, store, runner = run(plan, BySize())
    assert runner.most_at_once == 2
    assert first_visits(store) == sorted(trial.request.trial_id for trial in plan.trials())
