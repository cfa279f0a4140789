"""What was measured here of the figures that others published: each beside its like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.choice import default_setting
from raybench.analysis.labels import devices_words
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.overlap import BatchOverlap
from raybench.analysis.published import (
    UNITS,
    Contradiction,
    Figure,
    Source,
    fact,
    load_contradictions,
    load_figures,
    sources,
)
from raybench.analysis.published_values import LEARNED, NOT_TRAINED, TRAINED, Found, Run, Values
from raybench.analysis.reference import scaling_first
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.analysis.summary import TrialSummary
from raybench.analysis.training import TrainingResults
from raybench.records.record import TrialRecord


@dataclass(frozen=True)
class Measured:
    """What was measured here of a figure's quantity, in the figure's unit."""

    value: float
    low: float | None  # None: the summary has no interval for it
    high: float | None
    n: int | None
    world_size: int
    batch_size: int | None  # per device; None: that of the figure
    derived: str = ""  # how it follows from what was measured, where it was not measured itself


@dataclass(frozen=True)
class Pair:
    """A published figure and what stands beside it; None where this study measured no such thing."""

    figure: Figure
    measured: Measured | None
    why_not: str = ""  # there is nothing beside it; empty too where there is nothing to measure


@dataclass(frozen=True)
class PublishedExperiment:
    """What a write-up says of its experiment as a whole; None where it does not."""

    figures: tuple[Figure, ...]
    sources: tuple[Source, ...]
    epochs: float | None
    samples: float | None  # of an epoch
    contradictions: tuple[Contradiction, ...]


def published_experiment(study: str) -> PublishedExperiment | None:
    """The experiment that a study repeats; None for a study that repeats none."""
    figures = load_figures(study)
    if not figures:
        return None
    epochs, samples = fact(figures, "epochs"), fact(figures, "samples")
    known = sources()
    named = dict.fromkeys(figure.source for figure in figures)
    return PublishedExperiment(
        figures, tuple(known[name] for name in named), epochs, samples, load_contradictions(study)
    )


def pairs(
    results: MeasuredStudy,
    experiment: PublishedExperiment,
    summaries: Sequence[TrialSummary],
    training: TrainingResults | None,
    hidden: Sequence[BatchOverlap],
) -> tuple[Pair, ...]:
    """What was measured of each figure's quantity, in the trial of its strategy, world size and batch.

    Where the figures' world sizes were not measured at all, the largest one measured stands beside the
    smallest of theirs. So with batches: where none is the same, the largest stands beside the largest, the
    second beside the second. What a write-up chose (a price, a number of epochs) has nothing beside it.
    """
    counterparts = _Counterparts(results, experiment, summaries, training, hidden)
    return tuple(counterparts.pair(figure) for figure in experiment.figures)


class _Counterparts:
    """What was measured here, by published figure."""

    def __init__(
        self,
        results: MeasuredStudy,
        experiment: PublishedExperiment,
        summaries: Sequence[TrialSummary],
        training: TrainingResults | None,
        hidden: Sequence[BatchOverlap],
    ) -> None:
        figures, asked = experiment.figures, results.study.training
        self._results = results
        self._rows = {row.trial_id: row for row in summaries}
        run = Run(
            # an epoch and a run as they are here, beside what training trials took; else as they are there
            epochs=asked.epochs if asked else experiment.epochs,
            samples=results.epoch_samples or experiment.samples,
            price=fact(figures, "price"),
            runs=fact(figures, "runs"),
        )
        self._values = Values(results, run, self._rows, training, tuple(hidden))
        self._stand_in = _stand_in(results, figures)
        self._batches = {
            size: self._batch_stand_in(size, figures) for size in {f.world_size for f in figures}
        }

    def pair(self, figure: Figure) -> Pair:
        """``figure`` with its quantity in the trial that is like it, or why there is none."""
        if figure.world_size is None or figure.origin == "chosen":
            return Pair(figure, None)
        record = self._record(figure)
        if record is None:
            found = Found(self._in_rounds(figure), why_not=self._why_no_trial(figure))
        else:
            found = self._values.of(figure, record)
        value = found.value
        if value is None or not math.isfinite(value.value):
            return Pair(figure, None, found.why_not)
        scaled, has_interval = value.scaled(1 / UNITS[figure.unit]), value.n > 0
        measured = Measured(
            scaled.value,
            scaled.low if has_interval else None,
            scaled.high if has_interval else None,
            value.n if has_interval else None,
            record.config.world_size if record else figure.world_size,
            record.config.batch_size if record else None,
            found.derived,
        )
        return Pair(figure, measured)

    def _why_no_trial(self, figure: Figure) -> str:
        """What is missing that a trial would have to have, the first of devices, strategy, batch."""
        there, devices = self._at(figure.world_size), devices_words(figure.world_size or 1)
        if not there:
            return f"no trial on {devices}"
        several = [r for r in there if r.config.world_size > 1]
        if several and figure.strategy not in (None, *(r.config.setting.strategy for r in several)):
            return f"no trial of {figure.strategy} on {devices}"
        if figure.batch_size is not None and figure.batch_size not in {r.config.batch_size for r in there}:
            return f"no trial at batch {figure.batch_size:,} per device on {devices}"
        return NOT_TRAINED

    def _in_rounds(self, figure: Figure) -> Estimate | None:
        """One device without a trial of its own, in the rounds of a trial on several."""
        if figure.world_size != 1 or figure.quantity not in ("step_time", "throughput"):
            return None
        for record in self._results.measured:
            config, found = record.config, self._results.scaling(record)
            batch = config.batch_size * (1 if config.scaling == "weak" else config.world_size)
            base = found.baseline
            if batch == figure.batch_size and base and base.paired and base.world_size == 1:
                step_s, samples = base.step_time_s, batch * config.setting.gradient_accumulation
                if figure.quantity == "step_time":
                    return step_s
                return inverse(step_s).scaled(samples)
        return None

    def _at(self, world_size: int | None) -> list[TrialRecord]:
        """Trials at a published world size, or at what stands in for it."""
        size = self._stand_in.get(world_size or 0, world_size)
        complete = self._results.complete
        beside = ("confirmation", "verification")
        return [r for r in complete if r.request.role not in beside and r.config.world_size == size]

    def _batch_stand_in(self, world_size: int | None, figures: Sequence[Figure]) -> dict[int | None, int]:
        """Measured batches beside published ones that were not, the largest beside the largest."""
        theirs = {f.batch_size for f in figures if f.world_size == world_size and f.batch_size}
        ours = {record.config.batch_size for record in self._at(world_size)}
        if theirs & ours:
            return {}
        return dict(zip(sorted(theirs, reverse=True), sorted(ours, reverse=True), strict=False))

    def _record(self, figure: Figure) -> TrialRecord | None:
        batch = self._batches[figure.world_size].get(figure.batch_size, figure.batch_size)
        default = default_setting(self._results.study)
        fitting = [
            record
            for record in self._at(figure.world_size)
            if record.config.world_size == 1 or figure.strategy in (None, record.config.setting.strategy)
        ]
        fitting = [record for record in fitting if batch in (None, record.config.batch_size)]
        if figure.epoch is not None or figure.quantity in LEARNED or figure.of in TRAINED:
            fitting = [record for record in fitting if record.training is not None] or fitting
        elif figure.quantity in TRAINED:  # a training trial, where there is one, else the steps
            trained = [record for record in fitting if self._rows[record.trial_id].epoch_time_s is not None]
            fitting = trained or [record for record in fitting if record.steps is not None]
        else:
            fitting = [record for record in fitting if record.steps is not None]
        # of several settings the one nearest to the study's default
        return min(
            scaling_first(fitting),
            key=lambda record: len(record.config.setting.differences(default)),
            default=None,
        )


def _stand_in(results: MeasuredStudy, figures: Sequence[Figure]) -> dict[int, int]:
    """The largest measured world size in place of the smallest published one, where none is the same."""
    theirs = {each.world_size for each in figures if each.world_size and each.world_size > 1}
    ours = {record.config.world_size for record in results.complete if record.config.world_size > 1}
    return {min(theirs): max(ours)} if theirs and ours and not theirs & ours else {}
