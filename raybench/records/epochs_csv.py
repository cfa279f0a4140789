"""epochs.csv: one row an epoch and seed of each training trial."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from raybench.records.record import TrialRecord
from raybench.spec.placement import placement_text


def epochs_csv(records: Iterable[TrialRecord]) -> str:
    """The file's text; empty where nothing was trained."""
    rows = [row for record in records for row in epoch_rows(record)]
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: f"{value:.9g}" if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    )
    return text.getvalue()


def epoch_rows(record: TrialRecord) -> Iterator[dict[str, object]]:
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
