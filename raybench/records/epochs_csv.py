"""epochs.csv: one row an epoch and seed of each training trial."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from raybench.records.record import TrialRecord
from raybench.spec.placement import placement_text

_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def guarded(text: str) -> str:
    """``text`` as a cell; numbers are left as they are."""
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def unguarded(cell: str) -> str:
    """What ``guarded`` made a cell of."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


#: study: name of the study
#: trial_id: id of the record
#: strategy: how the model is spread
#: world_size: number of devices
#: placement: `pack`, `spread`, or ranks with spaces between them
#: seed: seed of weights and order of samples
#: batch_size: samples of one device's micro-batch, under strong scaling of all devices in an
#:   optimizer step
#: global_batch_size: samples of all devices in an optimizer step
#: precision: as the knob
#: epoch: number of the epoch, from 1
#: steps: steps of the optimizer
#: skipped_steps: of these, left out by the gradient scaler of fp16
#: learning_rate: learning rate in the epoch's last step
#: train_loss: mean over the training samples, while the model was trained
#: train_accuracy: share of the training samples, 0 to 1, while the model was trained
#: test_loss: mean over the test samples
#: test_accuracy: share of the test samples, 0 to 1
#: train_time_s: time of training on the slowest rank, in s
#: evaluation_time_s: time of the evaluation, in s
#: elapsed_s: training and evaluation since the first epoch began, in s
#: samples: samples that all ranks trained on
#: samples_by_rank: samples that each rank trained on, with spaces between them
COLUMNS = (
    "study", "trial_id", "strategy", "world_size", "placement", "seed", "batch_size", "global_batch_size",
    "precision", "epoch", "steps", "skipped_steps", "learning_rate", "train_loss", "train_accuracy",
    "test_loss", "test_accuracy", "train_time_s", "evaluation_time_s", "elapsed_s", "samples",
    "samples_by_rank",
)  # fmt: skip


def epochs_csv(records: Iterable[TrialRecord]) -> str:
    """The file's text; empty where nothing was trained. ``elapsed_s`` counts from the first epoch on."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    rows = [row for record in records for row in _rows(record)]
    writer.writerows(rows)
    return text.getvalue() if rows else ""


def _rows(record: TrialRecord) -> Iterable[dict[str, object]]:
    if record.training is None:
        return
    config, elapsed_s = record.config, 0.0
    for epoch in record.training.epochs:
        elapsed_s += epoch.elapsed_s
        row = {
            "study": record.study,
            "trial_id": record.trial_id,
            "strategy": config.setting.strategy,
            "world_size": config.world_size,
            "placement": placement_text(config.placement),
            "seed": config.seed,
            "batch_size": config.setting.batch_size,
            "global_batch_size": config.global_batch_size,
            "precision": config.setting.precision,
            "epoch": epoch.epoch,
            "steps": epoch.steps,
            "skipped_steps": epoch.skipped_steps,
            "learning_rate": epoch.learning_rate,
            "train_loss": epoch.train_loss,
            "train_accuracy": epoch.train_accuracy,
            "test_loss": epoch.test_loss,
            "test_accuracy": epoch.test_accuracy,
            "train_time_s": epoch.train_s,
            "evaluation_time_s": epoch.evaluation_s,
            "elapsed_s": elapsed_s,
            "samples": sum(epoch.samples),
            "samples_by_rank": " ".join(map(str, epoch.samples)),
        }
        yield {name: _cell(value) for name, value in row.items()}


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.9g}"
    return guarded(value) if isinstance(value, str) else value
