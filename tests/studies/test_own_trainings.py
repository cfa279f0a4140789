"""A transformers.Trainer and a LightningModule, each measured and trained by one command as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from raybench.spec.study import Study
from tests.studies.briefly import BRIEFLY
from tests.support.forked import ForkedCommand

STUDY = """
name = "own"
[workload]
{workload}
samples = 128
[knobs]
{knobs}
[search]
max_batch_size = 16
[training]
epochs = 3
"""
VARIANTS = {"plain", "concurrent", "local", "ddp", "replay"}


def measured(folder: Path, workload: str, knobs: str) -> tuple[Study, list[TrialRecord], str, str]:
    """The study as it ran, its records, what the command printed, and the report."""
    (folder / "own.toml").write_text(STUDY.format(workload=workload, knobs=knobs))
    command = ForkedCommand("scaling", "own.toml", "--output", "out", *BRIEFLY, folder=folder)
    assert command.wait() == 0, command.output
    assert command.survivors(10) == []
    with ResultsDirectory.open_readonly(folder / "out") as store:
        study, records = store.study(), list(store.latest().values())
    assert {record.state for record in records} == {"complete"}, command.output
    return study, records, command.output, (folder / "out" / "report" / "report.md").read_text()


def variants_of(records: list[TrialRecord], strategy: str) -> set[str]:
    return {
        block.variant
        for record in records
        if record.steps is not None and record.config.setting.strategy == strategy
        for each in record.steps.rounds
        for block in each.blocks
    }


def last_epochs(records: list[TrialRecord]) -> dict[int, Any]:
    return {
        record.config.world_size: record.training.epochs for record in records if record.training is not None
    }


@pytest.mark.promise("own trainer")
def test_a_trainer_is_measured_as_it_is_and_learns(tmp_path: Path) -> None:
    workload = 'trainer = "tests.support.own_trainings:build_trainer"\ngradient_accumulation_steps = 2'
    knobs = 'batch_size = "max"\nstrategy = ["ddp", "fsdp"]'
    study, records, printed, report = measured(tmp_path, workload, knobs)
    assert "from tests.support.own_trainings:build_trainer: gradient_accumulation 2" in printed
    assert study.knobs.gradient_accumulation == (2,)
    assert variants_of(records, "ddp") >= VARIANTS
    assert variants_of(records, "fsdp") >= {"ddp"}
    own = "the NaN filter of the logged loss, the count of tokens on all devices"
    assert f"Not in these steps: scheduler, logging, evaluation, {own}." in report
    trained = last_epochs(records)
    assert set(trained) == {1, 2}
    for epochs in trained.values():
        assert epochs[-1].test_accuracy > 0.9
        assert epochs[-1].learning_rate < epochs[0].learning_rate  # its own linear schedule
    parities = [record.steps.parity for record in records if record.steps and record.steps.parity]
    assert parities
    assert all(each.gradient_difference < 1e-2 for each in parities)  # type: ignore[operator]  # None fails


@pytest.mark.promise("own lightning")
def test_a_lightning_module_is_measured_as_it_is_and_learns(tmp_path: Path) -> None:
    workload = 'lightning = "tests.support.own_trainings:build_lightning"'
    study, records, printed, report = measured(tmp_path, workload, "gradient_accumulation = [1, 2]")
    assert "from tests.support.own_trainings:build_lightning: batch_size 16" in printed
    assert study.knobs.batch_size == (16,)
    assert variants_of(records, "ddp") >= VARIANTS
    assert "Not in these steps: gradient clipping, scheduler, logging, evaluation." in report
    trained = last_epochs(records)
    assert set(trained) == {1, 2}
    for epochs in trained.values():
        assert epochs[-1].test_accuracy is None
        assert epochs[-1].test_loss < epochs[0].train_loss
        assert epochs[-1].learning_rate > epochs[0].learning_rate  # it warms up
