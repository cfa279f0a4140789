"""What a run says before it measures."""

from __future__ import annotations

import io
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from raybench.commands import scaling_run
from raybench.commands.display import Display
from raybench.commands.dry_run import plan_lines
from raybench.machine.environment import capture
from raybench.machine.resources import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.store import ResultsDirectory
from raybench.testing import QUIET, FakeRunner
from tests.unit.studies import study

TEXT = {"name": "text", "input": "real", "model": "distilbert"}
WORDS = "distilbert is trained from random weights: it is fine-tuned with --set workload.checkpoint="


def plan_of(**workload: Any) -> Plan:
    spec = study(workload={**TEXT, **workload}, training={"epochs": 1}, measure={"steps": 2})
    return make_plan(spec, Resources("cpu", 2, "a CPU"))


def lines_of_a_run(plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that a run prints, with planted times in the place of processes."""
    monkeypatch.setattr(scaling_run, "_runner", lambda *_: FakeRunner(noise=QUIET, num_devices=2))
    options: Any = SimpleNamespace(began=time.time(), retry=(), runner="group", verify=False)
    cluster: Any = SimpleNamespace(prepare=lambda needs, **_: None)
    console = Console(file=io.StringIO(), width=200)
    with ResultsDirectory.create(folder, plan.study, capture()) as store, Display(console) as display:
        scaling_run._measure(options, plan, cluster, store, display, None)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


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
