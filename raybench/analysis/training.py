"""Trained models: runs, the seeds of one setting together, goodput over batches, and all groups.

The gradient noise scale: McCandlish et al. (2018), "An empirical model of large-batch training", appendix
A.1: from the squared norms of gradients at two batch sizes follow unbiased estimates of the squared length of
the true gradient and of the trace of the per-sample covariance, S; B_simple = S / |G|^2. Goodput: Qiao et al.
(2021), "Pollux" (OSDI), section 3, as AdaptDL computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, geometric_mean, median

from raybench.analysis.choice import default_setting, is_default
from raybench.analysis.labels import difference_words
from raybench.analysis.resolve import Facts
from raybench.analysis.stats.statistics import (
    ANYWHERE,
    LEAST_VALUES,
    NORMAL_95,
    POSITIVE,
    SHARE,
    Bounds,
    Estimate,
    geometric,
    product,
    student,
    unpaired_ratio,
    within,
)
from raybench.analysis.stats.verdict import Verdict, values_to_tell, verdict
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.records.results import Epoch, GradientNorms, Pruned, TrainingResult, learning_curve
from raybench.spec.knobs import Setting
from raybench.spec.study import Study
from raybench.spec.training import TrainingSpec

POINTS = 100.0  # percentage points in an accuracy of 1
GREW = 1.1  # times the loss of the first epoch: trainings that learn nothing vary by less


@dataclass(frozen=True)
class NoiseScale:
    """Estimates of |G|^2 and S; either may be negative, being unbiased."""

    squared_gradient: float
    variance: float

    @property
    def samples(self) -> float | None:
        """B_simple = S / |G|^2, in samples; None where noise hides the gradient or the variance."""
        if self.squared_gradient <= 0 or self.variance < 0:
            return None
        return self.variance / self.squared_gradient


def two_batch(norms: GradientNorms) -> NoiseScale:
    """The estimates from one pair of batch sizes (McCandlish et al., equations A.1 and A.2)."""
    small, big = norms.small_batch, norms.big_batch
    squared = (big * norms.big_square - small * norms.small_square) / (big - small)
    variance = (norms.small_square - norms.big_square) / (1 / small - 1 / big)
    return NoiseScale(squared, variance)


def mean_scale(measured: Sequence[GradientNorms]) -> NoiseScale | None:
    """The means of the estimates of one epoch; None where there are none.

    Numerator and denominator are averaged separately: the ratio of single estimates would be biased.
    """
    pairs = [two_batch(norms) for norms in measured]
    if not pairs:
        return None
    return NoiseScale(fmean(each.squared_gradient for each in pairs), fmean(each.variance for each in pairs))


def mean_efficiency(epochs: Sequence[Epoch], reference_batch: int, batch: int) -> float | None:
    """Statistical efficiency of one run, the mean over its epochs; None where none has a measurement.

    Progress of a sample at ``batch`` over that of one at ``reference_batch``: (phi + B0) / (phi + B) with the
    noise scale phi = S / |G|^2, all in samples (Qiao et al. 2021, equation 6), where the learning rate grows
    with the batch. It is 1 where noise hides the gradient (|G|^2 of 0 or less): leaving such epochs out would
    favour small batches.
    """
    found = list[float]()
    for scale in filter(None, (mean_scale(epoch.noise) for epoch in epochs)):
        squared, variance = max(scale.squared_gradient, 0.0), max(scale.variance, 0.0)
        if squared or variance:
            found.append((variance + reference_batch * squared) / (variance + batch * squared))
    return fmean(found) if found else None


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
    def best_epoch(self) -> int | None:
        """The first epoch with the highest test accuracy; without accuracies the lowest test loss."""
        best = max(learning_curve(self.epochs), key=lambda scored: scored[1], default=None)
        return best[0] if best else None

    @property
    def converged_epoch(self) -> int | None:
        """The first epoch whose test accuracy is within the tolerance of the best."""
        known = [(e.epoch, e.test_accuracy) for e in self.epochs if e.test_accuracy is not None]
        enough = max((accuracy for _, accuracy in known), default=0) - self.spec.tolerance_points / POINTS
        return next((epoch for epoch, accuracy in known if accuracy >= enough), None)

    @property
    def epoch_time_s(self) -> float:
        """Mean training time of an epoch but the first, which warms up; without evaluation."""
        return fmean([epoch.train_s for epoch in self.epochs[1:] or self.epochs])

    @property
    def total_s(self) -> float:
        """Training and evaluation of all epochs."""
        return sum(epoch.elapsed_s for epoch in self.epochs)

    @property
    def time_to_target_s(self) -> float | None:
        """Training and evaluation until that finds the target accuracy; None: it is not reached."""
        target, taken_s = self.spec.target_accuracy, 0.0
        for epoch in self.epochs:
            taken_s += epoch.elapsed_s
            if target is not None and epoch.test_accuracy is not None and epoch.test_accuracy >= target:
                return taken_s
        return None

    @property
    def noise_scales(self) -> list[float]:
        """The gradient noise scale of each epoch in which it can be told, in samples."""
        scales = filter(None, (mean_scale(epoch.noise) for epoch in self.epochs))
        return [scale.samples for scale in scales if scale.samples is not None]


@dataclass(frozen=True)
class EpochMeans:
    """One epoch of all runs of a group: means over the seeds.

    ``None`` where no seed has the value. Accuracies are shares of 1, times in s.
    """

    epoch: int  # from 1
    train_loss: Estimate | None
    train_accuracy: Estimate | None
    test_loss: Estimate | None
    test_accuracy: Estimate | None
    train_s: Estimate | None


@dataclass(frozen=True)
class TrainedGroup:
    """The runs of one setting and world size, by seed; estimates are means over the seeds.

    With fewer than three seeds an estimate has no interval; n counts the seeds.
    """

    runs: tuple[TrainedRun, ...]
    changes: str  # in what its setting differs from the default's, but for the strategy; empty: in nothing
    epoch_time_s: Estimate  # training without evaluation, geometric; one value a seed: epochs share a run
    total_s: Estimate  # training and evaluation of all epochs
    # Training and evaluation until that finds the target accuracy, over the seeds that reach it; None: none
    # does, or should.
    time_to_target_s: Estimate | None
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
    def diverged(self) -> bool:
        """Whether the training loss of any run grew from its first epoch to its last, by more than noise."""
        return any(run.epochs[-1].train_loss > GREW * run.epochs[0].train_loss for run in self.runs)

    @property
    def final_accuracy(self) -> Estimate | None:
        """Of the test samples after the last epoch, 0 to 1; None: not known."""
        return self.epochs[-1].test_accuracy

    @property
    def best_accuracy(self) -> Estimate | None:
        """The highest of any epoch."""
        known = [each.test_accuracy for each in self.epochs if each.test_accuracy is not None]
        return max(known, key=lambda each: each.value, default=None)

    @property
    def num_epochs(self) -> int:
        """Epochs of each run."""
        return len(self.epochs)


def group_of(runs: Sequence[TrainedRun], changes: str = "") -> TrainedGroup:
    """All that ``runs`` of one setting and world size say together, after equally many epochs.

    Where one of them was stopped early that is after its last one; the target counts in all that each of them
    trained.
    """
    time_to_target_s = over_seeds((run.time_to_target_s for run in runs), POSITIVE)
    num_epochs = min(len(run.epochs) for run in runs)
    runs = [run.until(num_epochs) for run in runs]
    times_s = [run.epoch_time_s for run in runs]
    totals_s = over_seeds((run.total_s for run in runs), POSITIVE)
    assert totals_s is not None  # every run has one
    return TrainedGroup(
        runs=tuple(runs),
        changes=changes,
        epoch_time_s=ratio_over_seeds(times_s),
        total_s=totals_s,
        time_to_target_s=time_to_target_s,
        epochs=tuple(_epoch_means(epochs) for epochs in zip(*(run.epochs for run in runs), strict=True)),
    )


def _epoch_means(epochs: Sequence[Epoch]) -> EpochMeans:
    """``epochs``: the same one of every seed."""

    def mean(name: str, bounds: Bounds = POSITIVE) -> Estimate | None:
        return over_seeds((getattr(epoch, name) for epoch in epochs), bounds)

    return EpochMeans(
        epoch=epochs[0].epoch,
        train_loss=mean("train_loss"),
        train_accuracy=mean("train_accuracy", SHARE),
        test_loss=mean("test_loss"),
        test_accuracy=mean("test_accuracy", SHARE),
        train_s=mean("train_s"),
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


@dataclass(frozen=True)
class Goodput:
    """Throughput and what of it is useful, of one measured trial."""

    record: TrialRecord
    throughput_samples_per_s: Estimate
    statistical_efficiency: Estimate  # mean over the seeds
    goodput_samples_per_s: Estimate  # the uncertainty of both is in it


@dataclass(frozen=True)
class Comparison:
    """Several devices against one, or a changed setting against the default, after equally many epochs."""

    group: TrainedGroup
    base: TrainedGroup
    num_seeds: int  # that both have
    difference_points: Estimate | None  # of accuracy, group less base; fewer than 3 seeds: no interval
    noise_points: float  # that two equal models differ by within 95%, by the number of test samples alone
    tolerance_points: float
    parity: Verdict  # as good: the same within the tolerance
    seeds_to_tell: int | None  # with which it would be known, where it is not
    # Paired by seed; None: no seed in common; fewer than three have no interval.
    epoch_speedup: Estimate | None  # of the runs' mean epoch times
    total_speedup: Estimate | None


@dataclass(frozen=True)
class ScaleOverRuns:
    """The gradient noise scale of some runs, in samples: medians, as one that learns nothing has millions."""

    first: float  # in the first epoch
    last: float  # in the last one
    num_runs: int


@dataclass(frozen=True)
class TrainingResults:
    """What the training trials say."""

    groups: tuple[TrainedGroup, ...]  # one device first
    comparisons: tuple[Comparison, ...]  # of each setting, several devices against one
    changed: tuple[Comparison, ...]  # each setting but the default against it, on equally many devices
    noise_scale: ScaleOverRuns | None  # None: it was not measured
    goodput: tuple[Goodput, ...]  # empty where the learning rate does not grow with the batch, as it assumes

    @property
    def spec(self) -> TrainingSpec:
        """What was asked: the same of every run."""
        return self.groups[0].runs[0].spec

    @property
    def reference_batch(self) -> int:
        """Samples of an optimizer step to which the study's learning rate belongs."""
        return self.groups[0].runs[0].result.reference_batch

    def comparison(self, group: TrainedGroup) -> Comparison | None:
        """``group`` against one device; None of one device itself, or without it."""
        return next((each for each in self.comparisons if each.group is group), None)

    def change(self, group: TrainedGroup) -> Comparison | None:
        """``group`` against the default on as many devices; None of the default itself, or without it."""
        return next((each for each in self.changed if each.group is group), None)


def goodput_ratio(base: Facts, training: TrainingResults, config: Configuration) -> Estimate | None:
    """What ``config``, recommended for its samples/s, does to useful samples/s: over the default's.

    Of one global batch both learn equally, and it is the ratio of throughputs. None where one of them is not
    known, as of fewer than three seeds, and of the default itself.
    """
    record, known = base.reference_of(config), {id(each.record): each for each in training.goodput}
    used, own = known.get(id(record)), known.get(id(base.default))
    if used is None or own is None or used is own:
        return None
    if used.record.config.global_batch_size == own.record.config.global_batch_size:
        return unpaired_ratio(used.throughput_samples_per_s, own.throughput_samples_per_s)
    if used.statistical_efficiency.n < LEAST_VALUES:
        return None
    return unpaired_ratio(used.goodput_samples_per_s, own.goodput_samples_per_s)


def analyse_training(base: Facts) -> TrainingResults | None:
    """All that follows from the training trials; None where none is complete."""
    runs = [TrainedRun(record) for record in base.records if record.training is not None]
    if not runs:
        return None
    groups = _groups(base.study, runs)
    ones = [group for group in groups if group.world_size == 1]
    pairs = [
        (group, next((one for one in ones if one.config.same_question(group.config)), None))
        for group in groups
        if group.world_size > 1
    ]
    defaults = {(group.world_size, group.strategy): group for group in groups if not group.changes}
    changed = [(group, defaults.get((group.world_size, group.strategy))) for group in groups if group.changes]
    # a changed setting may have another batch: the scale is that of one
    measured = [run for group in groups if not group.changes for run in group.runs if run.noise_scales]
    first, last = ([run.noise_scales[end] for run in measured] for end in (0, -1))
    return TrainingResults(
        groups=tuple(groups),
        comparisons=tuple(compare(group, one) for group, one in pairs if one),
        changed=tuple(compare(group, default) for group, default in changed if default),
        noise_scale=ScaleOverRuns(median(first), median(last), len(measured)) if measured else None,
        goodput=tuple(_goodput(base, measured)),
    )


def _goodput(base: Facts, runs: Sequence[TrainedRun]) -> list[Goodput]:
    """Of every trial of the curve and of the search, by the ``runs`` that measured a noise scale."""
    if not runs or runs[0].spec.learning_rate_scaling in ("none", "world_size"):
        return []
    reference_batch, records = runs[0].result.reference_batch, base.by_role("scaling", "search")
    efficiencies = dict[int, Estimate | None]()
    for batch in {record.config.global_batch_size for record in records}:
        at_no_noise = reference_batch / batch  # and 1 at an infinite one
        bounds = min(1.0, at_no_noise), max(1.0, at_no_noise)
        values = (mean_efficiency(run.epochs, reference_batch, batch) for run in runs)
        efficiencies[batch] = over_seeds(values, bounds)
    found = []
    for record in records:
        rate = base.scaling(record).throughput_samples_per_s
        efficiency = efficiencies[record.config.global_batch_size]
        if efficiency is not None:
            found.append(Goodput(record, rate, efficiency, product(rate, efficiency)))
    return sorted(found, key=lambda each: (each.record.config.world_size, each.record.config.batch_size))


def compare(group: TrainedGroup, base: TrainedGroup) -> Comparison:
    """``group`` against ``base``, paired by seed, after equally many epochs.

    The accuracy is as good where the whole interval of the difference lies within the tolerance, better or
    worse where it lies on one side of 0, else it is not known yet; nor is it with fewer than three seeds.
    """
    fewest = min(group.num_epochs, base.num_epochs)  # one may have been stopped early
    group, base = (
        each
        if each.num_epochs == fewest
        else group_of([run.until(fewest) for run in each.runs], each.changes)
        for each in (group, base)
    )
    ones = {run.seed: run for run in base.runs}
    pairs = [(run, ones[run.seed]) for run in group.runs if run.seed in ones]
    tolerance = group.runs[0].spec.tolerance_points
    known = [
        (run.final_accuracy - one.final_accuracy) * POINTS
        for run, one in pairs
        if run.final_accuracy is not None and one.final_accuracy is not None
    ]
    difference = over_seeds(known, (-POINTS, POINTS))
    accuracies = [each.final_accuracy for pair in pairs for each in pair if each.final_accuracy is not None]
    epoch_speedups = [one.epoch_time_s / run.epoch_time_s for run, one in pairs]
    total_speedups = [one.total_s / run.total_s for run, one in pairs]
    return Comparison(
        group=group,
        base=base,
        num_seeds=len(pairs),
        difference_points=difference,
        noise_points=_noise_points(accuracies, group.runs[0].epochs[-1].test_samples) / sqrt(len(pairs) or 1),
        tolerance_points=tolerance,
        parity=(said := parity(difference, tolerance)),
        seeds_to_tell=(
            values_to_tell(difference, tolerance)
            if difference is not None and difference.n >= LEAST_VALUES and said is Verdict.UNKNOWN
            else None
        ),
        epoch_speedup=ratio_over_seeds(epoch_speedups) if pairs else None,
        total_speedup=ratio_over_seeds(total_speedups) if pairs else None,
    )


def _noise_points(accuracies: Sequence[float], test_samples: int | None) -> float:
    """Half of the 95% interval of a difference of two accuracies of one seed, each a share p of n samples."""
    if not accuracies or not test_samples:
        return 0.0
    p = fmean(accuracies)
    return POINTS * NORMAL_95 * sqrt(2 * p * (1 - p) / test_samples)


def parity(difference: Estimate | None, tolerance: float) -> Verdict:
    """What a difference with its interval says, all in percentage points."""
    if difference is None or difference.n < LEAST_VALUES:
        return Verdict.UNKNOWN
    return verdict(difference, tolerance)


def _groups(study: Study, runs: Sequence[TrainedRun]) -> list[TrainedGroup]:
    """One device first, of equally many the default's first."""
    alike: dict[tuple[int, Setting, str], list[TrainedRun]] = {}
    for run in runs:
        config = run.record.config
        key = (config.world_size, config.setting, str(sorted(config.environment.items())))
        alike.setdefault(key, []).append(run)
    groups = [group_of(of_one, _changes(study, of_one[0].record.config)) for of_one in alike.values()]
    return sorted(groups, key=lambda group: (group.world_size, bool(group.changes)))


def _changes(study: Study, config: Configuration) -> str:
    """In what ``config`` differs from the study's default, whatever the strategy; empty: in nothing."""
    default = default_setting(study)
    setting = config.setting.model_copy(update={"strategy": default.strategy})
    alike = config.model_copy(update={"setting": setting})
    return "" if is_default(study, alike) else difference_words(study, alike)
