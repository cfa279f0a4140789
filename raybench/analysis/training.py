"""Trained models: runs, the seeds of one setting together, and all groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import sqrt
from statistics import fmean, geometric_mean

from raybench.analysis.choice import default_setting, is_default
from raybench.analysis.labels import difference_words
from raybench.analysis.reference import grouped
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
    student,
    within,
)
from raybench.analysis.stats.verdict import Verdict, values_to_tell, verdict
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.records.results import Epoch, Pruned, TrainingResult
from raybench.spec.study import Study, TrainingSpec

POINTS = 100.0  # percentage points in an accuracy of 1
GREW = 1.1  # times the loss of the first epoch: trainings that learn nothing vary by less


@dataclass(frozen=True)
class TrainedRun:
    """One complete training trial."""

    record: TrialRecord
    num_epochs: int | None = None  # that are looked at; None: all that were trained

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
    def final_accuracy(self) -> float | None:
        """Of the test samples after the last epoch, 0 to 1."""
        return self.epochs[-1].test_accuracy

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
    def stopped_by(self) -> Pruned | None:
        """Why the first run to be stopped early was; None: none was."""
        return next((run.result.stopped_by for run in self.runs if run.result.stopped_by is not None), None)

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
    def peak_memory_bytes(self) -> int | None:
        """Of the rank that took most, as torch counts it, else as the device does; None: not known."""
        of_runs = [run.result.peak_memory_bytes or run.result.device_memory_bytes or () for run in self.runs]
        return max(itertools.chain(*of_runs), default=None)

    @property
    def utilization(self) -> Estimate | None:
        """Busy share of a device while training, mean over the ranks, 0 to 1; None: not known."""
        of_runs = [[each for each in run.result.device_utilization if each is not None] for run in self.runs]
        return over_seeds((fmean(each) for each in of_runs if each), SHARE)


def group_of(runs: Sequence[TrainedRun], changes: str = "") -> TrainedGroup:
    """All that ``runs`` of one setting and world size say together, after equally many epochs.

    Where one of them was stopped early that is after its last one; the target counts in all that each of them
    trained.
    """
    time_to_target_s = over_seeds((run.time_to_target_s for run in runs), POSITIVE)
    num_epochs = min(len(run.epochs) for run in runs)
    runs = [replace(run, num_epochs=num_epochs) for run in runs]
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
    means = dict[str, Estimate | None]()
    for name in [each.name for each in fields(EpochMeans) if each.name != "epoch"]:
        bounds = SHARE if name.endswith("accuracy") else POSITIVE
        means[name] = over_seeds((getattr(epoch, name) for epoch in epochs), bounds)
    return EpochMeans(epochs[0].epoch, **means)


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
class TrainingResults:
    """What the training trials say."""

    groups: tuple[TrainedGroup, ...]  # one device first
    comparisons: tuple[Comparison, ...]  # of each setting, several devices against one
    changed: tuple[Comparison, ...]  # each setting but the default against it, on equally many devices

    def comparison(self, group: TrainedGroup) -> Comparison | None:
        """``group`` against one device; None of one device itself, or without it."""
        return next((each for each in self.comparisons if each.group.config == group.config), None)

    def change(self, group: TrainedGroup) -> Comparison | None:
        """``group`` against the default on as many devices; None of the default itself, or without it."""
        return next((each for each in self.changed if each.group.config == group.config), None)


def analyse_training(base: Facts) -> TrainingResults | None:
    """All that follows from the training trials; None where none is complete."""
    runs = [TrainedRun(record) for record in base.records if record.training is not None]
    if not runs:
        return None
    groups = _groups(base.study, runs)
    ones = [group for group in groups if group.world_size == 1]
    several = [group for group in groups if group.world_size > 1]
    alone = ((group, [one for one in ones if one.config.same_question(group.config)]) for group in several)
    defaults = {(group.world_size, group.strategy): group for group in groups if not group.changes}
    changed = [(group, defaults.get((group.world_size, group.strategy))) for group in groups if group.changes]
    return TrainingResults(
        groups=tuple(groups),
        comparisons=tuple(compare(group, one[0]) for group, one in alone if one),
        changed=tuple(compare(group, default) for group, default in changed if default),
    )


def compare(group: TrainedGroup, base: TrainedGroup) -> Comparison:
    """``group`` against ``base``, paired by seed, after equally many epochs.

    The accuracy is as good where the whole interval of the difference lies within the tolerance, better or
    worse where it lies on one side of 0, else it is not known yet; nor is it with fewer than three seeds.
    """
    fewest = min(len(group.epochs), len(base.epochs))  # one may have been stopped early
    group, base = (
        each
        if len(each.epochs) == fewest
        else group_of([replace(run, num_epochs=fewest) for run in each.runs], each.changes)
        for each in (group, base)
    )
    of_seed = {run.seed: run for run in base.runs}
    pairs = [(run, of_seed[run.seed]) for run in group.runs if run.seed in of_seed]
    tolerance = group.runs[0].spec.tolerance_points
    finals = ((run.final_accuracy, one.final_accuracy) for run, one in pairs)
    known = [(mine, other) for mine, other in finals if mine is not None and other is not None]
    difference = over_seeds(((mine - other) * POINTS for mine, other in known), (-POINTS, POINTS))
    accuracies = [each for pair in known for each in pair]
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


def _noise_points(accuracies: Sequence[float], test_samples: int) -> float:
    """Half of the 95% interval of a difference of two accuracies of one seed, each a share p of n samples."""
    if not accuracies:
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
    alike = grouped(runs, lambda run: run.record.config.key(ignore=Configuration.ANY_WORKLOAD))
    groups = [group_of(of_one, _changes(study, of_one[0].record.config)) for of_one in alike.values()]
    return sorted(groups, key=lambda group: (group.world_size, bool(group.changes)))


def _changes(study: Study, config: Configuration) -> str:
    """In what ``config`` differs from the study's default, whatever the strategy; empty: in nothing."""
    default = default_setting(study)
    setting = config.setting.model_copy(update={"strategy": default.strategy})
    alike = config.model_copy(update={"setting": setting})
    return "" if is_default(study, alike) else difference_words(study, alike)
