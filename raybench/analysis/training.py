"""Training on one device and on several, and with changed settings, at equal epochs: accuracy and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from raybench.analysis.choice import default_setting, is_default
from raybench.analysis.estimates.bounded import LEAST_VALUES
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.goodput import Goodput, goodput_of
from raybench.analysis.labels import difference_words
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.trained_group import TrainedGroup, group_of, over_seeds, ratio_over_seeds
from raybench.analysis.trained_run import POINTS, TrainedRun
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.spec.study import Study
from raybench.spec.training import TrainingSpec


class Parity(StrEnum):
    """Whether several devices reach the accuracy of one."""

    SAME = "the same"
    DIFFERENT = "different"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True)
class Comparison:
    """Several devices against one, or a changed setting against the default, after equally many epochs."""

    group: TrainedGroup
    base: TrainedGroup
    num_seeds: int  # that both have
    difference_points: Estimate | None  # of accuracy, group less base; fewer than 3 seeds: no interval
    tolerance_points: float
    parity: Parity
    # Paired by seed; None: no seed in common; fewer than three have no interval.
    epoch_speedup: Estimate | None  # of the runs' mean epoch times
    total_speedup: Estimate | None


@dataclass(frozen=True)
class ScaleOverRuns:
    """The gradient noise scale of some runs, in samples: medians, as one that learns nothing has millions."""

    first: float  # after the first epoch
    last: float  # after the last one
    least: float  # of any run after the last epoch
    most: float
    num_runs: int


@dataclass(frozen=True)
class TrainingResults:
    """What the training trials say."""

    groups: tuple[TrainedGroup, ...]  # one device first
    comparisons: tuple[Comparison, ...]  # of each setting, several devices against one
    changed: tuple[Comparison, ...]  # each setting but the default against it, on equally many devices
    noise_scale: ScaleOverRuns | None  # None: it was not measured
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

    @property
    def most_goodput(self) -> Goodput | None:
        """The trial with the most useful samples/s; None where no noise scale was measured."""
        return max(self.goodput, key=lambda each: each.goodput_samples_per_s.value, default=None)

    @property
    def num_as_good(self) -> int:
        """Other trials that intervals do not tell apart from it."""
        most = self.most_goodput
        return sum(each.may_equal(most) for each in self.goodput if each is not most) if most else 0

    def comparison(self, group: TrainedGroup) -> Comparison | None:
        """``group`` against one device; None of one device itself, or without it."""
        return next((each for each in self.comparisons if each.group is group), None)


def analyse_training(base: MeasuredStudy) -> TrainingResults | None:
    """All that follows from the training trials; None where none is complete."""
    runs = [TrainedRun(record) for record in base.records if record.training is not None]
    if not runs:
        return None
    groups = _groups(base.study, runs)
    ones = [group for group in groups if group.world_size == 1]
    others = [(group, _like(group, ones)) for group in groups if group.world_size > 1]
    defaults = {(group.world_size, group.strategy): group for group in groups if not group.changes}
    changed = [(group, defaults.get((group.world_size, group.strategy))) for group in groups if group.changes]
    # a changed setting may have another batch: the scale is told of one
    told = [run for group in groups if not group.changes for run in group.runs if run.noise_scales]
    return TrainingResults(
        groups=tuple(groups),
        comparisons=tuple(compare(group, one) for group, one in others if one),
        changed=tuple(compare(group, default) for group, default in changed if default),
        noise_scale=_scale_over(told) if told else None,
        reference_batch=runs[0].result.reference_batch,
        goodput=tuple(goodput_of(base, runs[0].result.reference_batch, [run.epochs for run in told])),
    )


def _scale_over(runs: Sequence[TrainedRun]) -> ScaleOverRuns:
    """Of runs that each have a scale after some epoch."""
    first, last = ([run.noise_scales[end] for run in runs] for end in (0, -1))
    return ScaleOverRuns(median(first), median(last), min(last), max(last), len(runs))


def compare(group: TrainedGroup, base: TrainedGroup) -> Comparison:
    """``group`` against ``base``, paired by seed, after equally many epochs.

    The accuracy is the same where the whole interval of the difference lies within the tolerance, different
    where it lies outside, else it cannot be told; neither can it with fewer than three seeds.
    """
    group, base = _after_equally_many(group, base)
    ones = {run.seed: run for run in base.runs}
    pairs = [(run, ones[run.seed]) for run in group.runs if run.seed in ones]
    tolerance = group.runs[0].spec.tolerance_points
    known = [
        (run.final_accuracy - one.final_accuracy) * POINTS
        for run, one in pairs
        if run.final_accuracy is not None and one.final_accuracy is not None
    ]
    difference = over_seeds(known, (-POINTS, POINTS))
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


def _after_equally_many(*groups: TrainedGroup) -> tuple[TrainedGroup, ...]:
    """Each as it was after as many epochs as all of them have: one may have been stopped early."""
    fewest = min(group.num_epochs for group in groups)
    return tuple(group if group.num_epochs == fewest else group.until(fewest) for group in groups)


def parity(difference: Estimate | None, tolerance: float) -> Parity:
    """What a difference with its interval says, all in percentage points."""
    if difference is None or difference.n < LEAST_VALUES:
        return Parity.UNKNOWN
    if -tolerance <= difference.low and difference.high <= tolerance:
        return Parity.SAME
    outside = difference.high < -tolerance or difference.low > tolerance
    return Parity.DIFFERENT if outside else Parity.UNKNOWN


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


def _like(group: TrainedGroup, ones: Sequence[TrainedGroup]) -> TrainedGroup | None:
    """The training on one device of the same setting."""
    return next((one for one in ones if one.config.same_question(group.config)), None)
