"""What a run says before it measures."""

from __future__ import annotations

import io
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from raybench.commands import measuring, runs
from raybench.commands.measuring import EndedCommand, as_it_began
from raybench.commands.progress import Display
from raybench.commands.runs import plan_lines, planned
from raybench.commands.scaling import ScalingOptions
from raybench.driver.forecast import estimate
from raybench.driver.session import Session
from raybench.errors import RequestError, StoreError
from raybench.launch.cluster import Cluster
from raybench.machine.environment import capture, of_nodes
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import Note, NoteKind, Stage
from raybench.plan.trials import Plan
from raybench.records.store import ResultsDirectory
from raybench.workloads import Checked
from tests.support.planted import QUIET, FakeRunner
from tests.unit.studies import study

TEXT = {"name": "text", "input": "real", "model": "distilbert"}
WORDS = "distilbert is trained from random weights: it is fine-tuned with --set workload.checkpoint="


def plan_of(**workload: Any) -> Plan:
    spec = study(workload={**TEXT, **workload}, training={"epochs": 1}, measure={"steps": 2})
    return make_plan(spec, Resources("cpu", 2, "a CPU"))


def lines_of_a_run(plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that a run prints, with planted times in the place of processes."""
    fake = FakeRunner(noise=QUIET, num_devices=2)
    monkeypatch.setattr(measuring, "runner_class", lambda kind: lambda *_, **__: fake)
    monkeypatch.setattr(runs, "time", SimpleNamespace(time=lambda: 1000.0))
    options: Any = SimpleNamespace(began=1000.0, retry=(), runner="group", verify=False, lives_on=False)
    cluster: Any = SimpleNamespace(prepare=lambda needs, **_: None)
    console = Console(file=io.StringIO(), width=200)
    with ResultsDirectory.create(folder, plan.study, capture()) as store, Display(console) as display:
        runs._measure(options, plan, cluster, store, display, None)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("quiet", [False, True])
def test_what_the_report_counts_itself_is_no_note_of_the_run(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As "not reached: 5 of 18 trials": unless the answer alone is printed."""
    plan = make_plan(study(time_budget_seconds=60.0), Resources("cpu", 2, "a CPU"))
    late = [Note(NoteKind.NOT_REACHED, stage, 1, 2) for stage in Stage]
    monkeypatch.setattr(Session, "not_reached", late)
    monkeypatch.setattr(runs, "run_study", lambda session: None)
    monkeypatch.setattr(runs, "note_words", lambda note: note.stage)
    monkeypatch.setattr(runs, "workers", lambda *_, **__: nullcontext())
    monkeypatch.setattr(runs, "time", SimpleNamespace(time=lambda: 1000.0, monotonic=lambda: 0.0))
    options, cluster = ScalingOptions(quiet=quiet, began=1000.0), Cluster()
    with ResultsDirectory.create(tmp_path / "results", plan.study, capture()) as store:
        _, *said = runs._measure(options, plan, cluster, store, Display(Console(quiet=True)), None)
    assert said == (list(Stage) if quiet else [Stage.LARGEST_BATCH, Stage.VERIFICATION])


def test_training_from_random_weights_is_the_first_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of()
    assert lines_of_a_run(plan, tmp_path / "results", monkeypatch)[0].startswith(WORDS)
    assert next(plan_lines(plan)).startswith(WORDS)


@pytest.mark.parametrize("workload", [{"checkpoint": "distilbert-base-uncased"}, {"model": "encoder"}])
def test_of_a_checkpoint_or_a_model_that_has_none_nothing_is_said(
    workload: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(**workload)
    assert "random weights" not in " ".join(lines_of_a_run(plan, tmp_path / "results", monkeypatch))
    assert "random weights" not in " ".join(plan_lines(plan))


def dry(**fields: Any) -> str:
    return "\n".join(plan_lines(make_plan(study(**fields), Resources("cpu", 2, "a CPU"))))


def test_a_dry_run_is_of_a_whole_study(tmp_path: Path) -> None:
    options = ScalingOptions(output=tmp_path, resume=True, dry_run=True)
    with pytest.raises(RequestError, match="--dry-run: "):
        runs.run_scaling(options, Console(file=io.StringIO()))


def test_a_dry_run_estimates_the_time_and_says_what_it_is_of() -> None:
    lines = dry(knobs={"batch_size": [32, 64]}, search={"method": "grid"}, measure={"max_seconds": 10})
    assert re.search(
        r"estimated time: \d+ s to \d+ min, for about \d+ trials of at most 10 s of rounds each, 1 start of",
        lines,
    )
    short = dry(knobs={"batch_size": [32, 64]}, time_budget_seconds=60.0)
    assert "time budget: 60 s; where that is not enough trials are shortened, then left out" in short
    assert " at least, for about" in dry(measure={"steps": 5})
    real = {"name": "vision", "input": "real"}
    assert "without 2 trainings, whose time is not known" in dry(workload=real, training={"epochs": 1})


def test_a_dry_run_names_trials_and_scaled_learning_rates() -> None:
    lines = dry(knobs={"batch_size": [32, 64]}, search={"method": "grid"}).splitlines()
    assert any(line.endswith("2 devices, batch 64") for line in lines)
    trained = dry(
        workload={"name": "vision", "input": "real"},
        training={"epochs": 1, "learning_rate_scaling": "linear"},
    ).splitlines()
    of_seeds = "1 seed (accuracies have an interval from training.seeds=3 on)"
    assert f"training: 2 trainings of 1 epoch, {of_seeds}" in trained
    assert any(line.endswith("1 device, batch 32") for line in trained)
    assert any(line.endswith("2 devices, batch 32, 2 times the learning rate") for line in trained)


def test_a_search_for_more_than_there_is_goes_on_as_the_grid_that_it_became(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = study(
        knobs={"batch_size": [32, 64]},
        search={"method": "optuna", "trials": 24},
        resources={"device": "cpu"},
    )
    here, kept = capture(), list[str]()
    cluster: Any = SimpleNamespace(
        is_local=True,
        await_places=lambda *_: None,
        resources=lambda needs: Resources("cpu", 2, "a CPU"),
        environments=lambda needs: [here],
        close=lambda: None,
    )
    monkeypatch.setattr(runs, "check_workload", lambda *_: Checked())

    def run(store: ResultsDirectory, measure: Any, **_: Any) -> EndedCommand:
        kept.append(store.study().search.method)
        return EndedCommand(0, store.path)

    monkeypatch.setattr(runs, "measure_and_report", run)
    monkeypatch.setattr(runs, "request_of", lambda options: (cluster, spec))

    def typed(*, resume: bool) -> str:
        console = Console(file=io.StringIO(), width=200)
        options = ScalingOptions(output=tmp_path / "results", resume=resume)
        assert runs.run_scaling(options, console).code == 0
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    assert all("measured as a grid" in typed(resume=resume) for resume in (False, True))
    assert set(kept) == {"grid"}


@pytest.mark.parametrize("placement", ["pack", "spread"])
def test_what_began_on_more_nodes_is_planned_as_it_began(placement: str, tmp_path: Path) -> None:
    scaling = {"world_sizes": "all", "placement": [placement]}
    spec, here, heard = study(scaling=scaling), capture(), list[str]()
    began = Resources("cpu", 4, "a CPU", num_nodes=2)
    nodes = of_nodes([here, here.model_copy(update={"hostname": "another"})])
    ResultsDirectory.create(tmp_path / "out", make_plan(spec, began).study, nodes).close()
    left = as_it_began(tmp_path / "out", Resources("cpu", 2, "a CPU"), heard.append)
    assert (left.num_devices, left.num_nodes) == (4, 2)
    assert heard == ["goes on with 1 of 2 nodes: what does not fit on them is left out"]
    with ResultsDirectory.resume(tmp_path / "out") as store:
        store.check_same(make_plan(spec, left).study, here)
    assert as_it_began(tmp_path / "out", began, heard.append) == began


def test_a_dry_run_refuses_a_directory_with_something_in_it_as_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of()
    monkeypatch.setattr(runs, "check_workload", lambda *_: Checked())
    cluster: Any = SimpleNamespace(
        await_places=lambda *_: None,
        resources=lambda needs: Resources("cpu", 2, "a CPU"),
        is_local=True,
        close=lambda: None,
    )
    monkeypatch.setattr(runs, "request_of", lambda options: (cluster, plan.study))
    (tmp_path / "empty").mkdir()
    options = ScalingOptions(output=tmp_path, dry_run=True)
    console = Console(file=io.StringIO())
    with pytest.raises(StoreError, match="not empty"):
        runs.run_scaling(options, console)
    options = ScalingOptions(output=tmp_path / "empty", dry_run=True)
    assert runs.run_scaling(options, console) == EndedCommand(0)
    assert not list((tmp_path / "empty").iterdir())


def test_what_a_script_does_is_said_before_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(
        study(workload={"script": "train.py", "args": "--bs {batch_size}"}, measure={"steps": 2}),
        Resources("cpu", 2, "a CPU"),
    )
    said = (
        "script: train.py --bs {batch_size}; every trial runs it from its beginning, and what it writes to "
    )
    assert lines_of_a_run(plan, tmp_path / "results", monkeypatch)[0].startswith(said)
    assert next(plan_lines(plan)).startswith(said)


def test_a_dry_run_counts_the_starts_of_a_script() -> None:
    fields: dict[str, Any] = {"measure": {"max_seconds": 10}}
    lines = dry(workload={"script": "train.py"}, **fields)
    assert ", a start of the script for each, " in lines
    script, own = (
        make_plan(study(**each, **fields), Resources("cpu", 2, "a CPU"))
        for each in ({"workload": {"script": "train.py"}}, {})
    )
    trials = [[each for part in planned(plan) for each in part] for plan in (script, own)]
    assert len(trials[0]) == len(trials[1])
    with_starts, without = estimate(script, trials[0]), estimate(own, trials[1])
    assert with_starts.least_s > without.least_s
    assert with_starts.most_s > without.most_s
