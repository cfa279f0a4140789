"""A study that would fail whatever the setting ends with its first trial; one that would not goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from raybench.analysis import analyse
from raybench.analysis.findings.finding import FindingName, Reason
from raybench.driver.in_flight import MOST_LOOKS
from raybench.errors import GroupLostError, NoRoomError
from raybench.machine.host import Resources
from raybench.plan.notes import NoteKind
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import GroupInfo, Outcome, Progress
from raybench.records.requests import TrialRequest
from tests.support.planted import FakeRunner
from tests.unit.runs import QUIET_ENOUGH, run
from tests.unit.studies import study

KNOBS = {"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1], "precision": ["fp32", "bf16"]}
METHODS = [{"method": "grid"}, {"method": "optuna", "trials": 9}]
WHERE = ("own_model.py:29, in loss: return self.head(outputs).loss",)
Fails = Callable[[TrialRequest], "str | None"]


class Crashing(FakeRunner):
    """Trials crash in the user's code with what ``fails`` says, at the line ``where`` of the setting."""

    def __init__(
        self,
        fails: Fails,
        frames: Callable[[TrialRequest], tuple[str, ...]] | None = None,
        *,
        capacity: int = 1,
    ) -> None:
        super().__init__(noise=QUIET_ENOUGH, capacity=capacity)
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
    assert [(note.kind, note.number) for note in executed.notes] == [(NoteKind.ALL_FAIL, 1)]


def test_a_bug_that_says_something_else_of_every_batch_costs_one_trial() -> None:
    """As shapes that do not fit do: of 512 samples they differ, of 100 they cannot be made."""

    def fails(request: TrialRequest) -> str:
        if request.config.batch_size == 512:
            return "rank 0: RuntimeError: The size of tensor a (512) must match the size of tensor b (8)"
        return "rank 0: RuntimeError: shape '[-1, 64]' is invalid for input of size 100"

    runner = Crashing(fails)
    _, store, _ = run(planned(knobs={"batch_size": [512, 100]}), runner)
    assert len(store.latest()) == 1
    assert [each.kind for each in runner.requests] == ["steps", "probe"]


@pytest.mark.parametrize("search", METHODS, ids=["grid", "optuna"])
def test_side_by_side_a_bug_costs_the_trials_that_had_begun(search: dict[str, object]) -> None:
    runner = Crashing(bug, capacity=3)
    executed, store, _ = run(planned(search=search), runner)
    num_begun = 3 if search["method"] == "grid" else 2  # the default's curve
    assert [each.kind for each in runner.requests] == ["steps"] * num_begun + ["probe"] * 2
    assert len(store.latest()) == num_begun
    assert [(note.kind, note.number) for note in executed.notes] == [(NoteKind.ALL_FAIL, num_begun)]


@pytest.mark.parametrize("search", METHODS, ids=["grid", "optuna"])
def test_side_by_side_a_failure_among_others_is_its_own(search: dict[str, object]) -> None:
    runner = Crashing(
        lambda request: bug(request) if request.config.setting.precision == "bf16" else None, capacity=3
    )
    executed, store, _ = run(planned(search=search), runner)
    assert {r.config.setting.precision for r in store.records if r.state == "complete"} == {"fp32"}
    assert runner.most_at_once == 3
    assert NoteKind.ALL_FAIL not in [note.kind for note in executed.notes]


def test_its_diagnosis_is_the_error_the_place_and_the_command() -> None:
    plan = planned()
    _, store, _ = run(plan, Crashing(bug))
    (found,) = analyse(plan.study, store.records).diagnosis
    assert (found.name, found.reason) == (FindingName.FAILED, Reason.CRASHED)
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
    visited = [each for each in store.records if each.request.visit]
    assert {each.state for each in visited} == {"complete"}  # not so the default
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


def test_every_other_batch_is_tried() -> None:
    runner = Crashing(bug)
    run(planned(knobs={"batch_size": [64, 1, 2, 4, 8, 16, 32]}), runner)
    tried = [each.config.batch_size for each in runner.requests if each.kind == "probe"]
    assert tried == [1, 2, 4, 8, 16, 32]


def test_with_more_values_than_a_few_looks_can_hold_the_study_goes_on() -> None:
    plan = planned(knobs={"batch_size": [100, *range(1, MOST_LOOKS + 2)]})
    _, store, runner = run(plan, Crashing(bug))
    assert not any(each.kind == "probe" for each in runner.requests)
    assert len(store.latest()) == len(plan.trials())


def test_every_other_value_of_every_knob_is_tried() -> None:
    """The data set cannot be pickled: only without processes of the loader does anything run."""
    knobs = {"batch_size": 64, "workers": [2, 4, 0], "precision": ["fp32", "bf16"]}
    runner = Crashing(lambda request: bug(request) if request.config.setting.workers else None)
    executed, store, _ = run(planned(workload={"name": "vision", "input": "real"}, knobs=knobs), runner)
    assert executed.notes == []
    visited = [each for each in store.records if each.request.visit]
    assert {each.state for each in visited} == {"complete"}  # not so the default
    looks = [each.config.setting for each in runner.requests if each.kind == "probe"]
    assert [(each.workers, each.precision) for each in looks] == [(4, "bf16"), (0, "bf16")]
    assert {r.config.setting.workers for r in store.records if r.state == "complete"} == {0}


BACKENDS = {"environment": {"MY_BACKEND": ["a", "b"]}, "knobs": {"batch_size": [64, 32]}}


def test_what_one_process_environment_brings_out_leaves_the_others() -> None:
    runner = Crashing(lambda each: bug(each) if each.config.environment["MY_BACKEND"] == "a" else None)
    executed, store, _ = run(planned(**BACKENDS), runner)
    assert NoteKind.ALL_FAIL not in [note.kind for note in executed.notes]
    complete = [r.config.environment for r in store.records if r.state == "complete"]
    assert complete
    assert {each["MY_BACKEND"] for each in complete} == {"b"}


def test_a_bug_in_every_process_environment_costs_one_trial() -> None:
    runner = Crashing(bug)
    _, store, _ = run(planned(**BACKENDS), runner)
    (record,) = store.latest().values()
    assert [each.config.environment["MY_BACKEND"] for each in runner.requests] == ["a", "b"]
    assert record.reason is not None
    assert "batch 32, MY_BACKEND=b" in record.reason


@pytest.mark.parametrize("lost", [GroupLostError("it died"), NoRoomError("none fits", 0)])
def test_a_look_that_finds_no_workers_says_nothing(lost: Exception) -> None:
    class Picky(Crashing):
        def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
            if environment == {"MY_BACKEND": "b"} and len(self.requests) == 1:
                raise lost
            return super().start(world_size, environment, anew=anew)

    plan = planned(**BACKENDS)
    _, store, _ = run(plan, Picky(bug))
    assert len(store.latest()) == len(plan.trials())


def test_under_strong_scaling_the_batch_of_a_device_is_tried() -> None:
    plan = planned(scaling={"mode": "strong"}, knobs={"batch_size": [512, 64]})
    runner = Crashing(bug)
    run(plan, runner)
    assert [each.config.batch_size for each in runner.requests] == [256, 32]


def test_the_largest_batch_is_not_looked_for_where_none_can_run() -> None:
    runner = Crashing(bug)
    executed, store, _ = run(planned(knobs={"batch_size": ["max", 64]}), runner)
    assert len(store.latest()) == 1
    assert [(note.kind, note.number) for note in executed.notes] == [(NoteKind.ALL_FAIL, 1)]


def test_mended_and_resumed_the_study_goes_on() -> None:
    plan = planned()
    _, store, _ = run(plan, Crashing(bug))
    _, _, runner = run(plan, FakeRunner(noise=QUIET_ENOUGH), store, retry=frozenset({"crashed"}))
    assert {each.state for each in store.latest().values()} == {"complete"}
    assert len(store.latest()) > len(plan.trials())  # and visits
    assert not any(each.kind == "probe" for each in runner.requests)
    again = Crashing(bug)
    run(plan, again, store)  # nothing is asked of a study that has all
    assert again.requests == []


def test_once_a_trial_has_completed_every_failure_is_its_own() -> None:
    plan = planned(knobs={"batch_size": [32, 512]})
    runner = Crashing(lambda request: bug(request) if request.config.batch_size == 512 else None)
    run(plan, runner)
    assert not any(each.kind == "probe" for each in runner.requests)
