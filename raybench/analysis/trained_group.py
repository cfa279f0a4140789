"""The training trials of one setting and world size: means over their seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from raybench.analysis.estimates.bounded import ANYWHERE, LEAST_VALUES, POSITIVE, SHARE, Bounds, within
from raybench.analysis.estimates.statistics import Estimate, geometric, student
from raybench.analysis.trained_run import TrainedRun
from raybench.records.requests import Configuration
from raybench.records.trainings import Epoch, Pruned


@dataclass(frozen=True)
class EpochMeans:
    """One epoch of all runs of a group: means over the seeds.

    ``None`` where no seed has the value. Accuracies are shares of 1, times in s.
    """

    epoch: int  # from 1
    learning_rate: float  # of the first seed: it is the same for all
    num_seeds: int
    train_loss: Estimate | None
    train_accuracy: Estimate | None
    test_loss: Estimate | None
    test_accuracy: Estimate | None
    train_s: Estimate | None
    evaluation_s: Estimate | None


@dataclass(frozen=True)
class ToTarget:
    """Until an evaluation finds the target accuracy: means over the seeds that reached it."""

    num_reached: int  # seeds
    time_s: float | None  # training and evaluation; None: no seed reached it
    samples: float | None  # trained on


@dataclass(frozen=True)
class TrainedGroup:
    """The runs of one setting and world size, by seed; estimates are means over the seeds.

    With fewer than three seeds an estimate has no interval; n counts the seeds.
    """

    runs: tuple[TrainedRun, ...]
    changes: str  # in what its setting differs from the default's, but for the strategy; empty: in nothing
    final_accuracy: Estimate | None  # of 1, after the last epoch; None: not known
    best_epochs: tuple[int, int] | None  # first and last over the seeds
    converged_epochs: tuple[int, int] | None
    epoch_time_s: Estimate  # training without evaluation, geometric; one value a seed: epochs share a run
    mean_epoch_time_s: float  # arithmetic
    total_s: Estimate  # training and evaluation of all epochs
    to_target: ToTarget | None  # None: no target was asked
    epochs: tuple[EpochMeans, ...]  # the first one first

    @property
    def config(self) -> Configuration:
        """What was trained, by the first seed."""
        return self.runs[0].record.config

    @property
    def strategy(self) -> str:
        """How the model is spread."""
        return self.config.setting.strategy

    @property
    def world_size(self) -> int:
        """Devices."""
        return self.config.world_size

    @property
    def global_batch_size(self) -> int:
        """Samples of an optimizer step."""
        return self.runs[0].result.global_batch_size

    @property
    def stopped_by(self) -> Pruned | None:
        """Why the first run to be stopped early was; None: none was."""
        return next((run.stopped_by for run in self.runs if run.stopped_by is not None), None)

    @property
    def num_test_samples(self) -> int | None:
        """By which the accuracy after the last epoch was found; None: it was not evaluated."""
        return self.runs[0].epochs[-1].test_samples

    @property
    def num_epochs(self) -> int:
        """Epochs of each run."""
        return len(self.epochs)

    def until(self, num_epochs: int) -> TrainedGroup:
        """The same as it was after its first ``num_epochs``."""
        return group_of([run.until(num_epochs) for run in self.runs], self.changes)


def group_of(runs: Sequence[TrainedRun], changes: str = "") -> TrainedGroup:
    """All that ``runs`` of one setting and world size say together, after equally many epochs.

    Where one of them was stopped early that is after its last one; whether the target was reached is told of
    all that each of them trained.
    """
    to_target = None if runs[0].spec.target_accuracy is None else _to_target(runs)
    num_epochs = min(len(run.epochs) for run in runs)
    runs = [run.until(num_epochs) for run in runs]
    times_s = [run.epoch_time_s for run in runs]
    totals_s = over_seeds((run.total_s for run in runs), POSITIVE)
    assert totals_s is not None  # every run has one
    return TrainedGroup(
        runs=tuple(runs),
        changes=changes,
        final_accuracy=over_seeds((run.final_accuracy for run in runs), SHARE),
        best_epochs=_first_and_last(run.best_epoch for run in runs),
        converged_epochs=_first_and_last(run.converged_epoch for run in runs),
        epoch_time_s=ratio_over_seeds(times_s),
        mean_epoch_time_s=fmean(times_s),
        total_s=totals_s,
        to_target=to_target,
        epochs=tuple(_epoch_means(epochs) for epochs in zip(*(run.epochs for run in runs), strict=True)),
    )


def _first_and_last(epochs: Iterable[int | None]) -> tuple[int, int] | None:
    known = [epoch for epoch in epochs if epoch is not None]
    return (min(known), max(known)) if known else None


def _to_target(runs: Sequence[TrainedRun]) -> ToTarget:
    times_s = [time_s for run in runs if (time_s := run.time_to_target_s) is not None]
    samples = [number for run in runs if (number := run.samples_to_target) is not None]
    return ToTarget(len(times_s), fmean(times_s) if times_s else None, fmean(samples) if samples else None)


def _epoch_means(epochs: Sequence[Epoch]) -> EpochMeans:
    """``epochs``: the same one of every seed."""

    def mean(name: str, bounds: Bounds = POSITIVE) -> Estimate | None:
        return over_seeds((getattr(epoch, name) for epoch in epochs), bounds)

    return EpochMeans(
        epoch=epochs[0].epoch,
        learning_rate=epochs[0].learning_rate,
        num_seeds=len(epochs),
        train_loss=mean("train_loss"),
        train_accuracy=mean("train_accuracy", SHARE),
        test_loss=mean("test_loss"),
        test_accuracy=mean("test_accuracy", SHARE),
        train_s=mean("train_s"),
        evaluation_s=mean("evaluation_s"),
    )


def over_seeds(values: Iterable[float | None], bounds: Bounds = ANYWHERE) -> Estimate | None:
    """Mean of the values that there are, with Student's interval within ``bounds``; n counts the values.

    Fewer than ``LEAST_VALUES`` have no interval. Where a value lies beyond the bounds there are none.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) < LEAST_VALUES:
        return _alone(fmean(known), len(known))
    lives_there = bounds[0] <= min(known) and max(known) <= bounds[1]
    return within(student(known), bounds if lives_there else ANYWHERE)


def ratio_over_seeds(values: Sequence[float]) -> Estimate:
    """The geometric mean of times or their ratios, one for each seed; of fewer than 3 without interval."""
    return geometric(values) if len(values) >= LEAST_VALUES else _alone(geometric_mean(values), len(values))


def _alone(value: float, n: int) -> Estimate:
    return Estimate(value, value, value, n)
