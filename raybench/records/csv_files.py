"""CSV files of values, and the rows of epochs.csv: one an epoch and seed of each training trial."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping

from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue
from raybench.spec.placement import placement_text


def rows_csv(rows: Iterable[Mapping[str, KnobValue]]) -> str:
    """Rows that have the same columns, the names of these first; empty cells where unknown."""
    text, every = io.StringIO(), list(rows)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(every[:1])  # the names
    writer.writerows(map(_csv_cell, row.values()) for row in every)
    return text.getvalue()


def _csv_cell(value: KnobValue) -> KnobValue:
    if isinstance(value, float):
        return f"{value:.9g}"
    return str(value).lower() if isinstance(value, bool) else value


def epoch_rows(record: TrialRecord) -> Iterator[dict[str, KnobValue]]:
    """A row for each epoch of a training trial, by column; none of another trial."""
    if record.training is None:
        return
    config, elapsed_s = record.config, 0.0
    for epoch in record.training.epochs:
        elapsed_s += epoch.elapsed_s
        yield {
            #: name of the study
            "study": record.study,
            #: id of the record
            "trial_id": record.trial_id,
            #: how the model is spread
            "strategy": config.setting.strategy,
            #: number of devices
            "world_size": config.world_size,
            #: `pack`, `spread`, or ranks with spaces between them
            "placement": placement_text(config.placement),
            #: seed of weights and order of samples
            "seed": config.seed,
            #: samples of one device's micro-batch, under strong scaling of all devices in an
            #: optimizer step
            "batch_size": config.setting.batch_size,
            #: samples of all devices in an optimizer step
            "global_batch_size": config.global_batch_size,
            #: as the knob
            "precision": config.setting.precision,
            #: number of the epoch, from 1
            "epoch": epoch.epoch,
            #: steps of the optimizer
            "steps": epoch.steps,
            #: of these, left out by the gradient scaler of fp16
            "skipped_steps": epoch.skipped_steps,
            #: learning rate in the epoch's last step
            "learning_rate": epoch.learning_rate,
            #: mean over the training samples, while the model was trained
            "train_loss": epoch.train_loss,
            #: share of the training samples, 0 to 1, while the model was trained
            "train_accuracy": epoch.train_accuracy,
            #: mean over the test samples
            "test_loss": epoch.test_loss,
            #: share of the test samples, 0 to 1
            "test_accuracy": epoch.test_accuracy,
            #: time of training on the slowest rank, in s
            "train_time_s": epoch.train_s,
            #: time of the evaluation, in s
            "evaluation_time_s": epoch.evaluation_s,
            #: training and evaluation since the first epoch began, in s
            "elapsed_s": elapsed_s,
            #: samples that all ranks trained on
            "samples": sum(epoch.samples),
            #: samples that each rank trained on, with spaces between them
            "samples_by_rank": " ".join(map(str, epoch.samples)),
        }
