"""Which trials are profiled: those that the answer is about, and each of them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raybench.machine.environment import capture
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome, RankFile
from raybench.records.requests import Configuration, StepsRequest, TrialRequest
from raybench.records.store import TRACES, ResultsDirectory
from raybench.spec.knobs import Setting
from tests.support.planted import FakeRunner, StepCosts
from tests.unit.runs import QUIET_ENOUGH, run
from tests.unit.studies import study

BEST = 4096


def planned(**fields: Any) -> Plan:
    given = {"knobs": {"batch_size": [256, BEST]}, "measure": {"half_width": 0.02, "profile": True}} | fields
    return make_plan(study(**given), Resources("cpu", 4, "a CPU"))


def costs(config: Configuration, setting: Setting) -> StepCosts:
    """The same exposed communication at any batch: the larger one scales better."""
    return StepCosts(plain_s=setting.batch_size * 1e-5, exposed_s=0.003 if config.world_size > 1 else 0.0)


class Profiling(FakeRunner):
    """Brings a file of each rank where a profile is asked for."""

    def __init__(self) -> None:
        super().__init__(costs, QUIET_ENOUGH)

    def run(self, request: TrialRequest, on_progress: Any) -> Outcome:
        outcome = super().run(request, on_progress)
        files = tuple(RankFile(f"rank{rank}.pt.trace.json.gz", b"trace") for rank in outcome.ranks)
        return Outcome(**{**vars(outcome), "files": files if is_profiled(request) else ()})


def is_profiled(request: TrialRequest) -> bool:
    return request.kind == "steps" and request.measure.profile


def what(request: StepsRequest) -> tuple[str, int, int]:
    return request.role, request.config.world_size, request.config.setting.batch_size


def profiled(runner: FakeRunner) -> list[tuple[str, int, int]]:
    """Role, world size and batch of the trials that were asked for one, in their order."""
    return [what(each) for each in runner.requests if each.kind == "steps" and is_profiled(each)]


def test_a_search_profiles_the_curves_of_default_and_winner_at_the_target(tmp_path: Path) -> None:
    plan = planned(search={"method": "optuna", "trials": 2})
    with ResultsDirectory.create(tmp_path / "results", plan.study, capture()) as store:
        _, _, runner = run(plan, Profiling(), store)
        assert profiled(runner) == [("scaling", 4, 256), ("scaling", 4, BEST)]
        ids = {each.trial_id for each in runner.requests if is_profiled(each)}
        folders = {path.name: path for path in (store.path / TRACES).iterdir()}
        assert set(folders) == ids
        for folder in folders.values():
            names = {f"rank{rank}.pt.trace.json.gz": b"trace" for rank in range(4)}
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == names


def test_a_grid_profiles_its_winner_when_it_is_known(tmp_path: Path) -> None:
    _, _, runner = run(planned(), Profiling(), ResultsDirectory.create(tmp_path / "r", study(), capture()))
    assert profiled(runner) == [("scaling", 4, 256), ("scaling", 4, BEST)]


def test_the_default_alone_where_nothing_is_better() -> None:
    _, _, runner = run(planned(knobs={"batch_size": [256]}), FakeRunner(costs, QUIET_ENOUGH))
    assert profiled(runner) == [("scaling", 4, 256)]


def test_one_start_of_several_and_one_placement() -> None:
    plan = planned(
        knobs={"batch_size": [256]},
        measure={"half_width": 0.02, "profile": True, "starts": 2},
        scaling={"placement": ["pack", "spread"]},
    )
    asked = [trial for trial in plan.trials() if is_profiled(trial)]
    assert [(each.config.placement, trial_start(each)) for each in asked] == [("pack", 0)]


def trial_start(request: TrialRequest) -> int:
    assert request.kind == "steps"
    return request.start


def test_nothing_is_profiled_unasked() -> None:
    _, _, runner = run(planned(measure={"half_width": 0.02}), FakeRunner(costs, QUIET_ENOUGH))
    assert profiled(runner) == []


def test_a_profile_makes_no_other_trial() -> None:
    with_it, without = planned(), planned(measure={"half_width": 0.02})
    ids = [[trial.trial_id for trial in plan.trials()] for plan in (with_it, without)]
    assert ids[0] == ids[1]


def test_what_was_measured_before_is_not_measured_again() -> None:
    _, store, _ = run(planned(measure={"half_width": 0.02}), FakeRunner(costs, QUIET_ENOUGH))
    _, _, runner = run(planned(), FakeRunner(costs, QUIET_ENOUGH), store)
    assert runner.requests == []
