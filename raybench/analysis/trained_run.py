"""One training trial: its epochs, its times, its best and last accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean

from raybench.analysis.estimates.noise_scale import by_epoch
from raybench.records.record import TrialRecord
from raybench.records.trainings import Epoch, Pruned, TrainingResult
from raybench.spec.training import TrainingSpec

POINTS = 100.0  # percentage points in an accuracy of 1


@dataclass(frozen=True)
class TrainedRun:
    """One complete training trial."""

    record: TrialRecord
    num_epochs: int | None = None  # that are looked at; None: all that were trained

    def until(self, num_epochs: int) -> TrainedRun:
        """The same as it was after its first ``num_epochs``."""
        return replace(self, num_epochs=num_epochs)

    @property
    def seed(self) -> int:
        """Of weights and order."""
        return self.record.config.seed

    @property
    def result(self) -> TrainingResult:
        """What the trial has."""
        assert self.record.training is not None
        return self.record.training

    @property
    def spec(self) -> TrainingSpec:
        """What was asked."""
        assert self.record.request.kind == "training"
        return self.record.request.training

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The first one first."""
        return self.result.epochs[: self.num_epochs]

    @property
    def stopped_by(self) -> Pruned | None:
        """What it did not reach where it ended early; None: it was trained to its last epoch."""
        return self.result.stopped_by

    @property
    def final_accuracy(self) -> float | None:
        """Of the test samples after the last epoch, 0 to 1."""
        return self.epochs[-1].test_accuracy

    @property
    def final_loss(self) -> float | None:
        """Of the test samples after the last epoch."""
        return self.epochs[-1].test_loss

    @property
    def best_epoch(self) -> int | None:
        """The first epoch with the highest test accuracy; without accuracies the lowest test loss."""
        by_accuracy = {e.epoch: e.test_accuracy for e in self.epochs if e.test_accuracy is not None}
        if by_accuracy:
            return max(by_accuracy, key=lambda epoch: by_accuracy[epoch])
        by_loss = {e.epoch: e.test_loss for e in self.epochs if e.test_loss is not None}
        return min(by_loss, key=lambda epoch: by_loss[epoch], default=None)

    @property
    def converged_epoch(self) -> int | None:
        """The first epoch whose test accuracy is within the tolerance of the best."""
        known = [(e.epoch, e.test_accuracy) for e in self.epochs if e.test_accuracy is not None]
        enough = max((accuracy for _, accuracy in known), default=0) - self.spec.tolerance_points / POINTS
        return next((epoch for epoch, accuracy in known if accuracy >= enough), None)

    @property
    def steady_epoch_times_s(self) -> tuple[float, ...]:
        """Training time of each epoch but the first, which warms up, unless it is the only one."""
        times = tuple(epoch.train_s for epoch in self.epochs)
        return times[1:] or times

    @property
    def epoch_time_s(self) -> float:
        """Mean training time of an epoch, without evaluation."""
        return fmean(self.steady_epoch_times_s)

    @property
    def total_s(self) -> float:
        """Training and evaluation of all epochs."""
        return sum(epoch.elapsed_s for epoch in self.epochs)

    @property
    def time_to_target_s(self) -> float | None:
        """Training and evaluation until an evaluation finds the target accuracy; None: it never does."""
        return self._until_target([epoch.elapsed_s for epoch in self.epochs])

    @property
    def samples_to_target(self) -> int | None:
        """Samples trained on until an evaluation finds the target accuracy."""
        found = self._until_target([sum(epoch.samples) for epoch in self.epochs])
        return None if found is None else int(found)

    def _until_target(self, amounts: Sequence[float]) -> float | None:
        target = self.spec.target_accuracy
        if target is None:
            return None
        sums = zip(self.epochs, accumulate(amounts), strict=True)
        return next(
            (total for e, total in sums if e.test_accuracy is not None and e.test_accuracy >= target), None
        )

    @property
    def noise_scales(self) -> list[float]:
        """The gradient noise scale after each epoch in which it can be told, in samples."""
        found = [each.samples for each in by_epoch(self.epochs) if each is not None]
        return [samples for samples in found if samples is not None]
