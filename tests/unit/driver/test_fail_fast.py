"""A study whose default crashes wherever it is tried ends there; one in which anything completes goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from raybench.analysis.findings.finding import FindingName, Reason
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import NoteKind
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome, Progress
from raybench.records.record import State
from raybench.records.requests import TrialRequest
from tests.support.analysis import analyse
from tests.support.planted import FakeRunner
from tests.unit.runs import QUIET_ENOUGH, run
from tests.unit.studies import study

KNOBS = {"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1], "precision": ["fp32", "bf16"]}
METHODS = [{"method": "grid"}, {"method": "optuna", "trials": 9}]
WHERE = "own_model.py:29, in loss: return self.head(outputs).loss"
BUG = "rank 0: AttributeError: no loss"
Fails = Callable[[TrialRequest], bool]


class Failing(FakeRunner):
    """Trials of which ``fails`` says so end in the user's code."""

    def __init__(self, fails: Fails = lambda _: True, state: State = "crashed") -> None:
        super().__init__(noise=QUIET_ENOUGH)
        self._fails, self._state = fails, state

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        self.fail = (lambda _: (self._state, BUG)) if self._fails(request) else None
        outcome = super().run(request, on_progress)
        return replace(outcome, frame=WHERE) if self.fail else outcome


def planned(**fields: object) -> Plan:
    given = {"knobs": KNOBS, "search": {"method": "grid"}, "measure": {"half_width": 0.02}} | fields
    return make_plan(study(**given), Resources("cpu", 2, "a CPU"))


@pytest.mark.parametrize("search", METHODS, ids=["grid", "optuna"])
def test_a_bug_costs_the_default_at_every_world_size(search: dict[str, object]) -> None:
    executed, store, runner = run(planned(search=search), Failing())
    assert [(each.config.world_size, each.state) for each in store.records] == [
        (2, "crashed"),
        (1, "crashed"),
    ]
    assert {each.config.setting.batch_size for each in store.records} == {512}
    assert len(runner.requests) == 2
    assert [(note.kind, note.reason) for note in executed.notes] == [(NoteKind.ALL_FAIL, BUG)]


def test_its_diagnosis_is_the_error_the_place_and_the_command() -> None:
    plan = planned()
    _, store, _ = run(plan, Failing())
    (found,) = analyse(plan.study, store.records).diagnosis
    assert (found.name, found.reason) == (FindingName.FAILED, Reason.CRASHED)
    assert found.severity == "problem"
    assert found.frame == WHERE
    assert found.command.endswith("--retry crashed")


@pytest.mark.parametrize("state", ["oom", "timeout"])
def test_what_a_smaller_or_another_setting_may_avoid_leaves_the_others(state: State) -> None:
    runner = Failing(lambda request: request.config.batch_size == 512, state)
    executed, store, _ = run(planned(), runner)
    assert {r.config.setting.batch_size for r in store.records if r.state == "complete"} == {32, 128}
    assert NoteKind.ALL_FAIL not in [note.kind for note in executed.notes]


def test_what_several_devices_bring_out_leaves_the_one() -> None:
    _, store, _ = run(planned(), Failing(lambda request: request.config.world_size > 1))
    assert {r.config.world_size for r in store.records if r.state == "complete"} == {1}


def test_where_the_largest_batch_is_looked_for_the_default_crashes_with_the_smallest() -> None:
    executed, store, _ = run(planned(knobs={"batch_size": ["max", 64]}), Failing())
    assert [each.request.kind for each in store.records] == ["probe", "steps", "steps"]
    assert [note.kind for note in executed.notes] == [NoteKind.ALL_FAIL]


def test_mended_and_resumed_the_study_goes_on() -> None:
    plan = planned()
    _, store, _ = run(plan, Failing())
    run(plan, FakeRunner(noise=QUIET_ENOUGH), store, retry=frozenset({"crashed"}))
    assert {each.state for each in store.latest().values()} == {"complete"}
    assert len(store.latest()) > len(plan.trials())  # and visits
    again = Failing()
    run(plan, again, store)  # nothing is asked of a study that has all
    assert again.requests == []


def test_once_a_trial_has_completed_every_failure_is_its_own() -> None:
    plan = planned(knobs={"batch_size": [32, 512]})
    executed, store, _ = run(plan, Failing(lambda request: request.config.batch_size == 512))
    assert {record.state for record in store.records} == {"complete", "crashed"}
    assert executed.notes == []
