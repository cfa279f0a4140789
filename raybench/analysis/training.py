"""Training on one device and on several at equal epochs: accuracy, times, speed-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.goodput import Goodput, goodput_of
from raybench.analysis.trained_group import TrainedGroup, group_of, over_seeds, ratio_over_seeds
from raybench.analysis.trained_run import POINTS, TrainedRun
from raybench.records.record import TrialRecord
from raybench.spec.training import TrainingSpec


class Parity(StrEnum):
    """Whether several devices reach the accuracy of one."""

    SAME = "the same"
    DIFFERENT = "different"
    UNKNOWN = "cannot be told"


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
    keys = sorted(dict.fromkeys(_key(run) for run in runs), key=lambda key: key[0])  # one device first
    groups = [group_of([run for run in runs if _key(run) == key]) for key in keys]
    base = next((group for group in groups if group.world_size == 1), None)
    others = [group for group in groups if group.world_size > 1]
    scales = [run.noise_scales for run in runs if run.noise_scales]
    ends = (fmean(each[0] for each in scales), fmean(each[-1] for each in scales)) if scales else None
    return TrainingResults(
        groups=tuple(groups),
        comparisons=tuple(compare(group, base) for group in others) if base else (),
        noise_scale=ends,
        reference_batch=runs[0].result.reference_batch,
        goodput=tuple(goodput_of(records, runs[0].result.reference_batch, scales)),
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


def _key(run: TrainedRun) -> tuple[int, str]:
    return run.record.config.world_size, run.record.config.setting.strategy
