"""Trials with processes of their own: these may die before a trial begins, and take their time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from raybench.driver import time_budget as budget
from raybench.driver.time_budget import TimeBudget
from raybench.errors import GroupLostError
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import OnProgress, Outcome
from raybench.records.requests import TrialRequest
from raybench.records.results import StepsResult
from tests.support.planted import FakeRunner
from tests.unit.runs import QUIET_ENOUGH, MemoryStore, run
from tests.unit.studies import study

KNOBS = {"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1, 25]}
GRID = {"method": "grid"}


def planned(**fields: object) -> Plan:
    given = {"knobs": KNOBS, "search": GRID, "measure": {"half_width": 0.02}} | fields
    return make_plan(study(**given), Resources("cpu", 2, "a CPU"))


def ids(store: MemoryStore) -> list[str]:
    return [record.trial_id for record in store.records]


class LosesSome(FakeRunner):
    """The processes of some trials die before these begin, each once."""

    def __init__(self, lost: Sequence[int]) -> None:
        super().__init__(noise=QUIET_ENOUGH)
        self.lost = lost

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        if len(self.requests) in self.lost:
            self.requests.append(request)
            raise GroupLostError("its process died")
        return super().run(request, on_progress)


def test_a_trial_whose_processes_died_before_it_began_is_asked_again() -> None:
    plan = planned()
    _, store, runner = run(plan, LosesSome([0, 2, 4]))
    first = [each.trial_id for each in store.records if not each.request.visit]
    assert sorted(first) == sorted(trial.trial_id for trial in plan.trials())
    assert {record.state for record in store.records} == {"complete"}
    assert len(runner.requests) == len(store.records) + 3


class Clocked(FakeRunner):
    """Trials take 10 s, less where their rounds are cut short, and processes of their own 15 s beside."""

    PROCESSES_S = 15.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(noise=QUIET_ENOUGH)
        self.now_s = 1000.0
        monkeypatch.setattr(budget, "monotonic", lambda: self.now_s)

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        outcome = super().run(request, on_progress)
        rounds_s = min(7.0, request.measure.max_seconds) if request.kind == "steps" else 7.0
        told: dict[str, Any] = {"wall_time_s": 3.0 + rounds_s, "processes_s": self.PROCESSES_S}
        if isinstance(outcome.result, StepsResult):
            told["result"] = outcome.result.model_copy(update={"measure_s": rounds_s})
        self.now_s += told["wall_time_s"] + self.PROCESSES_S
        return Outcome(**{**vars(outcome), **told})


@pytest.mark.promise("time budget")
@pytest.mark.parametrize("search", [GRID, {"method": "optuna", "trials": 9}], ids=["grid", "optuna"])
@pytest.mark.parametrize("seconds", [20, 60, 90, 170, 400, 3000])
def test_the_deadline_is_kept_and_what_was_not_reached_is_named(
    monkeypatch: pytest.MonkeyPatch, search: dict[str, object], seconds: float
) -> None:
    plan = planned(search=search)
    runner = Clocked(monkeypatch)
    end_s = runner.now_s + seconds
    executed, store, _ = run(plan, runner, budget=TimeBudget(end_s))
    assert sorted(ids(store)) == sorted(each.trial_id for each in runner.requests)
    if seconds > 20:  # of the first trial nothing is known beforehand
        assert runner.now_s <= end_s
    assert bool(executed.not_reached) == (seconds < 400)
