"""Training on one device and on several at equal epochs: accuracy, times, speed-up, goodput."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from statistics import fmean

from raybench.analysis.estimates.efficiency import throughput
from raybench.analysis.estimates.noise_scale import by_epoch, statistical_efficiency
from raybench.analysis.estimates.statistics import Estimate, geometric, student
from raybench.records.record import TrialRecord
from raybench.records.trainings import Epoch, TrainingResult
from raybench.spec.training import TrainingSpec

POINTS = 100.0  # percentage points in an accuracy of 1


class Parity(StrEnum):
    """Whether several devices reach the accuracy of one."""

    SAME = "the same"
    DIFFERENT = "different"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True)
class TrainedRun:
    """One complete training trial."""

    record: TrialRecord

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
        """All of them, the first one first."""
        return self.result.epochs

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
    """The runs of one strategy and world size, by seed; estimates are means over the seeds.

    With one seed an estimate has no interval, n = 1.
    """

    runs: tuple[TrainedRun, ...]
    final_accuracy: Estimate | None  # of 1, after the last epoch; None: not known
    best_epochs: tuple[int, int] | None  # first and last over the seeds
    converged_epochs: tuple[int, int] | None
    epoch_time_s: Estimate  # training without evaluation, geometric; one value a seed: epochs share a run
    mean_epoch_time_s: float  # arithmetic
    total_s: Estimate  # training and evaluation of all epochs
    to_target: ToTarget | None  # None: no target was asked
    epochs: tuple[EpochMeans, ...]  # the first one first

    @property
    def strategy(self) -> str:
        """How the model is spread."""
        return self.runs[0].record.config.setting.strategy

    @property
    def world_size(self) -> int:
        """Devices."""
        return self.runs[0].record.config.world_size

    @property
    def global_batch_size(self) -> int:
        """Samples of an optimizer step."""
        return self.runs[0].result.global_batch_size

    @property
    def num_epochs(self) -> int:
        """Epochs of each run."""
        return len(self.epochs)


@dataclass(frozen=True)
class Comparison:
    """Several devices against one, after equally many epochs."""

    group: TrainedGroup
    base: TrainedGroup
    num_seeds: int  # that both have
    difference_points: Estimate | None  # of accuracy, several less one; n = 1: without an interval
    tolerance_points: float
    parity: Parity
    # Paired by seed; None: no seed in common, n = 1: without an interval.
    epoch_speedup: Estimate | None  # of the runs' mean epoch times
    total_speedup: Estimate | None


@dataclass(frozen=True)
class Goodput:
    """Throughput and what of it is useful, of one measured trial."""

    record: TrialRecord
    throughput_samples_per_s: Estimate
    statistical_efficiency: float
    goodput_samples_per_s: Estimate  # interval of the throughput only


@dataclass(frozen=True)
class TrainingResults:
    """What the training trials say."""

    groups: tuple[TrainedGroup, ...]  # one device first
    comparisons: tuple[Comparison, ...]
    noise_scale: tuple[float, float] | None  # after the first and after the last epoch, mean over runs
    reference_batch: int
    goodput: tuple[Goodput, ...]

    @property
    def runs(self) -> tuple[TrainedRun, ...]:
        """Of all groups, one device first."""
        return tuple(run for group in self.groups for run in group.runs)

    @property
    def spec(self) -> TrainingSpec:
        """What was asked: the same of every run."""
        return self.groups[0].runs[0].spec

    @property
    def weights_difference(self) -> float | None:
        """The largest difference of a weight between two ranks at the end of a run; None: none is known."""
        differences = (run.result.weights_difference for run in self.runs)
        return max((each for each in differences if each is not None), default=None)

    def comparison(self, group: TrainedGroup) -> Comparison | None:
        """``group`` against one device; None of one device itself, or without it."""
        return next((each for each in self.comparisons if each.group is group), None)


def analyse_training(records: Sequence[TrialRecord]) -> TrainingResults | None:
    """All that follows from the training trials among ``records``; None where none is complete."""
    runs = [TrainedRun(record) for record in records if record.training is not None]
    if not runs:
        return None
    keys = dict.fromkeys((run.record.config.world_size, run.record.config.setting.strategy) for run in runs)
    groups = [
        _group([run for run in runs if _key(run) == key]) for key in sorted(keys, key=lambda key: key[0])
    ]
    base = next((group for group in groups if group.world_size == 1), None)
    others = [group for group in groups if group.world_size > 1]
    scales = [run.noise_scales for run in runs if run.noise_scales]
    ends = (fmean(each[0] for each in scales), fmean(each[-1] for each in scales)) if scales else None
    return TrainingResults(
        groups=tuple(groups),
        comparisons=tuple(compare(group, base) for group in others) if base else (),
        noise_scale=ends,
        reference_batch=runs[0].result.reference_batch,
        goodput=tuple(_goodput(records, runs[0].result.reference_batch, scales)),
    )


def compare(group: TrainedGroup, base: TrainedGroup) -> Comparison:
    """``group`` against ``base``, paired by seed.

    The accuracy is the same where the whole interval of the difference lies within the tolerance, different
    where it lies outside, else it cannot be told; neither can it with one seed.
    """
    ones = {run.seed: run for run in base.runs}
    pairs = [(run, ones[run.seed]) for run in group.runs if run.seed in ones]
    tolerance = group.runs[0].spec.tolerance_points
    known = [
        (run.final_accuracy - one.final_accuracy) * POINTS
        for run, one in pairs
        if run.final_accuracy is not None and one.final_accuracy is not None
    ]
    difference = over_seeds(known)
    epoch_speedups = [one.epoch_time_s / run.epoch_time_s for run, one in pairs]
    total_speedups = [one.total_s / run.total_s for run, one in pairs]
    return Comparison(
        group=group,
        base=base,
        num_seeds=len(pairs),
        difference_points=difference,
        tolerance_points=tolerance,
        parity=parity(difference, tolerance),
        epoch_speedup=ratio_over_seeds(epoch_speedups) if pairs else None,
        total_speedup=ratio_over_seeds(total_speedups) if pairs else None,
    )


def parity(difference: Estimate | None, tolerance: float) -> Parity:
    """What a difference with its interval says, all in percentage points."""
    if difference is None or difference.n < 2:
        return Parity.UNKNOWN
    if -tolerance <= difference.low and difference.high <= tolerance:
        return Parity.SAME
    outside = difference.high < -tolerance or difference.low > tolerance
    return Parity.DIFFERENT if outside else Parity.UNKNOWN


def over_seeds(values: Iterable[float | None]) -> Estimate | None:
    """Mean and Student's interval of the values that there are; of a single one no interval, n = 1."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return student(known) if len(known) > 1 else Estimate(known[0], known[0], known[0], 1)


def ratio_over_seeds(values: Sequence[float]) -> Estimate:
    """The geometric mean of times or their ratios, one for each seed; of a single one no interval, n = 1."""
    return geometric(values) if len(values) > 1 else Estimate(values[0], values[0], values[0], 1)


def _group(runs: Sequence[TrainedRun]) -> TrainedGroup:
    """All that ``runs`` of one strategy and world size say together."""
    times_s = [run.epoch_time_s for run in runs]
    totals_s = over_seeds(run.total_s for run in runs)
    assert totals_s is not None  # every run has one
    return TrainedGroup(
        runs=tuple(runs),
        final_accuracy=over_seeds(run.final_accuracy for run in runs),
        best_epochs=_first_and_last(run.best_epoch for run in runs),
        converged_epochs=_first_and_last(run.converged_epoch for run in runs),
        epoch_time_s=ratio_over_seeds(times_s),
        mean_epoch_time_s=fmean(times_s),
        total_s=totals_s,
        to_target=None if runs[0].spec.target_accuracy is None else _to_target(runs),
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

    def mean(name: str) -> Estimate | None:
        return over_seeds(getattr(epoch, name) for epoch in epochs)

    return EpochMeans(
        epoch=epochs[0].epoch,
        learning_rate=epochs[0].learning_rate,
        num_seeds=len(epochs),
        train_loss=mean("train_loss"),
        train_accuracy=mean("train_accuracy"),
        test_loss=mean("test_loss"),
        test_accuracy=mean("test_accuracy"),
        train_s=mean("train_s"),
        evaluation_s=mean("evaluation_s"),
    )


def _key(run: TrainedRun) -> tuple[int, str]:
    return run.record.config.world_size, run.record.config.setting.strategy


def _goodput(records: Sequence[TrialRecord], reference: int, scales: list[list[float]]) -> list[Goodput]:
    """Of every trial of the curve; the efficiency is the mean over epochs, and over runs."""
    measured = [record for record in records if record.steps is not None]
    curve = [record for record in measured if record.request.role == "scaling"]
    curve = curve or [record for record in measured if record.request.role == "search"]
    found = []
    for record in curve if scales else []:
        batch = record.config.global_batch_size
        efficiency = fmean(
            fmean(statistical_efficiency(scale, reference, batch) for scale in run) for run in scales
        )
        rate = throughput(record)
        found.append(Goodput(record, rate, efficiency, rate.scaled(efficiency)))
    return sorted(found, key=lambda each: (each.record.config.world_size, each.record.config.batch_size))
