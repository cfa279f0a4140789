"""A study that would fail whatever the setting ends with its first trial; one that would not goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from raybench.analysis import analyse
from raybench.analysis.diagnosis.findings import FindingName
from raybench.machine.resources import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome, Progress
from raybench.records.requests import TrialRequest
from raybench.run.hopeless import MOST_OTHERS
from raybench.testing import FakeRunner
from tests.unit.runs import QUIET_ENOUGH, run
from tests.unit.studies import study

KNOBS = {"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1], "precision": ["fp32", "bf16"]}
METHODS = [{"method": "grid"}, {"method": "optuna", "trials": 9}]
WHERE = ("own_model.py:29, in loss: return self.head(outputs).loss",)
Fails = Callable[[TrialRequest], "str | None"]


class Crashing(FakeRunner):
    """Trials crash in the user's code with what ``fails`` says, at the line ``where`` of the setting."""

    def __init__(self, fails: Fails, frames: Callable[[TrialRequest], tuple[str, ...]] | None = None) -> None:
        super().__init__(noise=QUIET_ENOUGH)
        self._fails, self._frames = fails, frames or (lambda request: WHERE)

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        words = self._fails(request)
        self.fail = None if words is None else lambda _: ("crashed", words)
        outcome = super().run(request, on_progress)
        return replace(outcome, frames=self._frames(request)) if words else outcome


def planned(**fields: object) -> Plan:
    given = {"knobs": KNOBS, "search": {"method": "grid"}, "measure": {"half_width": 0.02}} | fields
    return make_plan(study(**given), Resources("cpu", 2, "a CPU"))


def bug(request: TrialRequest) -> str:
    return f"rank 0: AttributeError: no loss of {request.config.batch_size} samples"


@pytest.mark.parametrize("search", METHODS, ids=["grid", "optuna"])
def test_a_bug_costs_one_trial(search: dict[str, object]) -> None:
    runner = Crashing(bug)
    executed, store, _ = run(planned(search=search), runner)
    (record,) = store.latest().values()
    assert record.state == "crashed"
    assert record.frames == WHERE
    first, *others = runner.requests
    assert first.trial_id == record.trial_id
    assert [each.kind for each in others] == ["probe"] * 2  # one for each other batch
    assert {each.config.world_size for each in others} == {1}
    assert {each.config.setting.batch_size for each in others} == {32, 128}
    assert {each.config.setting.precision for each in others} == {"bf16"}  # as much else as can be
    assert record.reason is not None
    assert record.reason.startswith("rank 0: AttributeError: no loss of 512 samples (whatever the setting: ")
    assert "batch 32" in record.reason
    assert "batch 128" in record.reason
    assert executed.notes == ["no more was asked: the first trial failed, and would whatever the setting"]


def test_its_diagnosis_is_the_error_the_place_and_the_command() -> None:
    plan = planned()
    _, store, _ = run(plan, Crashing(bug))
    (found,) = analyse(plan.study, store.records).diagnosis
    assert found.name == FindingName.CRASHED
    assert found.severity == "problem"
    assert found.frames == WHERE
    assert found.command.endswith("--retry crashed")


@pytest.mark.parametrize("search", METHODS, ids=["grid", "optuna"])
def test_what_one_batch_brings_out_leaves_the_others(search: dict[str, object]) -> None:
    plan = planned(search=search)
    runner = Crashing(lambda request: bug(request) if request.config.batch_size == 512 else None)
    executed, store, _ = run(plan, runner)
    by_state = {state: {r.config.setting.batch_size for r in store.records if r.state == state}
                for state in ("crashed", "complete")}  # fmt: skip
    assert by_state == {"crashed": {512}, "complete": {32, 128}}
    assert executed.notes == []
    assert sum(each.kind == "probe" for each in runner.requests) == 1  # the first answered


def test_what_one_precision_brings_out_leaves_the_others() -> None:
    knobs = {"batch_size": 64, "precision": ["bf16", "fp32"]}
    runner = Crashing(lambda request: bug(request) if request.config.setting.precision == "bf16" else None)
    _, store, _ = run(planned(knobs=knobs), runner)
    assert {r.config.setting.precision for r in store.records if r.state == "complete"} == {"fp32"}


def test_what_several_devices_bring_out_leaves_the_one() -> None:
    runner = Crashing(lambda request: bug(request) if request.config.world_size > 1 else None)
    _, store, _ = run(planned(), runner)
    assert {r.config.world_size for r in store.records if r.state == "complete"} == {1}


@pytest.mark.parametrize("other", ["words", "place", "state"])
def test_other_failures_elsewhere_are_no_proof(other: str) -> None:
    def fails(request: TrialRequest) -> str:
        odd = request.kind == "probe" and other == "words"
        return "rank 0: KeyError: 'labels'" if odd else bug(request)

    def frames(request: TrialRequest) -> tuple[str, ...]:
        odd = request.kind == "probe" and other == "place"
        return ("own_model.py:31, in loss: raise",) if odd else WHERE

    runner = Crashing(fails, frames)
    if other == "state":
        inner = runner.run
        runner.run = lambda request, told: (  # type: ignore[method-assign]
            replace(inner(request, told), state="oom") if request.kind == "probe" else inner(request, told)
        )
    plan = planned()
    _, store, _ = run(plan, runner)
    assert len(store.latest()) == len(plan.trials())


def test_one_setting_is_tried_again_on_one_device() -> None:
    plan = planned(knobs={"batch_size": 64})
    runner = Crashing(bug)
    _, store, _ = run(plan, runner)
    assert len(store.latest()) == 1
    assert [(each.kind, each.config.world_size) for each in runner.requests] == [("steps", 2), ("probe", 1)]


def test_many_batches_are_not_all_tried() -> None:
    runner = Crashing(bug)
    run(planned(knobs={"batch_size": [64, 1, 2, 4, 8, 16, 32]}), runner)
    tried = [each.config.batch_size for each in runner.requests if each.kind == "probe"]
    assert len(tried) == MOST_OTHERS
    assert tried[:2] == [1, 32]  # the ends first


def test_under_strong_scaling_the_batch_of_a_device_is_tried() -> None:
    plan = planned(scaling={"mode": "strong"}, knobs={"batch_size": [512, 64]})
    runner = Crashing(bug)
    run(plan, runner)
    assert [each.config.batch_size for each in runner.requests] == [256, 32]


def test_the_largest_batch_is_not_looked_for_where_none_can_run() -> None:
    runner = Crashing(bug)
    executed, store, _ = run(planned(knobs={"batch_size": ["max", 64]}), runner)
    assert len(store.latest()) == 1
    assert executed.notes == ["no more was asked: the first trial failed, and would whatever the setting"]


def test_mended_and_resumed_the_study_goes_on() -> None:
    plan = planned()
    _, store, _ = run(plan, Crashing(bug))
    _, _, runner = run(plan, FakeRunner(noise=QUIET_ENOUGH), store, retry=frozenset({"crashed"}))
    assert {each.state for each in store.latest().values()} == {"complete"}
    assert len(store.latest()) == len(plan.trials()) + 1  # the confirmation
    assert not any(each.kind == "probe" for each in runner.requests)
    again = Crashing(bug)
    run(plan, again, store)  # nothing is asked of a study that has all
    assert again.requests == []


def test_once_a_trial_has_completed_every_failure_is_its_own() -> None:
    plan = planned(knobs={"batch_size": [32, 512]})
    runner = Crashing(lambda request: bug(request) if request.config.batch_size == 512 else None)
    run(plan, runner)
    assert not any(each.kind == "probe" for each in runner.requests)
