"""What was measured here of the figures that others published: each beside its like."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raybench.analysis.choice import default_setting
from raybench.analysis.estimates.phases import PhaseTable, phase_table
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.hiding import Hiding
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.published import (
    UNITS,
    Contradiction,
    Figure,
    fact,
    load_contradictions,
    load_figures,
)
from raybench.analysis.same_setting import scaling_first
from raybench.analysis.summary import TrialSummary
from raybench.analysis.trained_run import TrainedRun
from raybench.analysis.training import TrainingResults
from raybench.records.record import TrialRecord
from raybench.records.trainings import Epoch

# What a training trial says of an epoch; without one, what follows from the step time.
TRAINED = frozenset({"epoch_time", "total_time", "device_minutes", "cost", "accuracy"})
# What only a training trial says.
LEARNED = frozenset({"train_loss", "test_loss", "train_accuracy", "best_accuracy", "convergence_epoch"})


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


@dataclass(frozen=True)
class PublishedExperiment:
    """What a write-up says of its experiment as a whole; None where it does not."""

    figures: tuple[Figure, ...]
    epochs: float | None
    samples: float | None  # of an epoch
    contradictions: tuple[Contradiction, ...]


def published_experiment(study: str) -> PublishedExperiment | None:
    """The experiment that a study repeats; None for a study that repeats none."""
    figures = load_figures(study)
    if not figures:
        return None
    epochs, samples = fact(figures, "epochs"), fact(figures, "samples")
    return PublishedExperiment(figures, epochs, samples, load_contradictions(study))


def pairs(
    results: MeasuredStudy,
    experiment: PublishedExperiment,
    summaries: Sequence[TrialSummary],
    training: TrainingResults | None,
    hidden: Sequence[Hiding],
) -> tuple[Pair, ...]:
    """What was measured of each figure's quantity, in the trial of its strategy, world size and batch.

    Where the figures' world sizes were not measured at all, the largest one measured stands beside the
    smallest of theirs. So with batches: where none is the same, the largest stands beside the largest, the
    second beside the second. Rules of the write-up (a price, a number of epochs) have nothing beside them.
    """
    counterparts = _Counterparts(results, experiment, summaries, training, hidden)
    return tuple(Pair(figure, counterparts.measured(figure)) for figure in experiment.figures)


class _Counterparts:
    """What was measured here, by published figure."""

    def __init__(
        self,
        results: MeasuredStudy,
        experiment: PublishedExperiment,
        summaries: Sequence[TrialSummary],
        training: TrainingResults | None,
        hidden: Sequence[Hiding],
    ) -> None:
        figures, asked = experiment.figures, results.study.training
        self._results, self._training, self._hidden = results, training, hidden
        # an epoch and a run as they are here, beside what training trials took; else as they are there
        self._epochs = asked.epochs if asked else experiment.epochs
        self._samples = results.epoch_samples or experiment.samples
        self._price = fact(figures, "price")
        self._rows = {row.trial_id: row for row in summaries}
        self._phases: dict[str, PhaseTable | None] = {}
        self._stand_in = _stand_in(results, figures)
        self._batches = {
            size: self._batch_stand_in(size, figures) for size in {f.world_size for f in figures}
        }

    def measured(self, figure: Figure) -> Measured | None:
        """The quantity of ``figure`` in the trial that is like it."""
        if figure.world_size is None:
            return None
        record = self._record(figure)
        size = record.config.world_size if record else figure.world_size
        found, derived = self._value(figure, record) if record else (self._in_rounds(figure), "")
        if found is None or not math.isfinite(found.value):
            return None
        scaled, has_interval = found.scaled(1 / UNITS[figure.unit]), found.n > 0
        return Measured(
            scaled.value,
            scaled.low if has_interval else None,
            scaled.high if has_interval else None,
            found.n if has_interval else None,
            size,
            record.config.batch_size if record else None,
            derived,
        )

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
                value, low, high = (samples / each for each in (step_s.value, step_s.high, step_s.low))
                return Estimate(value, low, high, step_s.n)
        return None

    def _at(self, world_size: int | None) -> list[TrialRecord]:
        """Trials at a published world size, or at what stands in for it."""
        size = self._stand_in.get(world_size or 0, world_size)
        complete = self._results.complete
        return [r for r in complete if r.request.role != "confirmation" and r.config.world_size == size]

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

    def _value(self, figure: Figure, record: TrialRecord) -> tuple[Estimate | None, str]:
        if figure.epoch is not None or figure.quantity in LEARNED:
            return _learned(figure, record), ""
        if figure.quantity == "speedup" and record.training is not None:
            return self._trained_speedup(figure, record), ""
        if figure.quantity in _FROM_RECORD:
            return _FROM_RECORD[figure.quantity](record, self._results), ""
        if figure.quantity in ("phase_share", "phase_speedup", "gain_share"):
            return self._phase(figure, record), ""
        if figure.quantity == "hiding_compute":
            return self._hiding(), ""
        row = self._rows[record.trial_id]
        if figure.quantity in ("accuracy", "memory", "utilization"):
            named = {"memory": "peak_memory_bytes", "utilization": "device_utilization"}
            value = getattr(row, named.get(figure.quantity, figure.quantity))
            return None if value is None else _bare(value), ""
        return self._over_epochs(figure, record)

    def _trained_speedup(self, figure: Figure, record: TrialRecord) -> Estimate | None:
        """Of the epochs or the whole of a training over one device's."""
        comparisons = self._training.comparisons if self._training else ()
        for each in comparisons:
            if record.trial_id in [run.record.trial_id for run in each.group.runs]:
                found = each.epoch_speedup if figure.of == "epoch_time" else each.total_speedup
                return _bare(found.value) if found is not None and found.n < 2 else found
        return None

    def _hiding(self) -> Estimate | None:
        found = next((each for each in self._hidden if each.compute_s is not None), None)
        if found is None or found.compute_s is None:
            return None
        if found.low_s is None or found.high_s is None:
            return _bare(found.compute_s)
        return Estimate(found.compute_s, found.low_s, found.high_s, min(p.fraction.n for p in found.points))

    def _over_epochs(self, figure: Figure, record: TrialRecord) -> tuple[Estimate | None, str]:
        """Times and costs of epochs: of a training trial, else of its steps where the samples are known."""
        trained_s = self._rows[record.trial_id].epoch_time_s
        epoch, derived = (None, "") if trained_s is None else (_bare(trained_s), "")
        if epoch is None and self._samples:
            rate = self._results.scaling(record).throughput_samples_per_s
            value, low, high = (self._samples / each for each in (rate.value, rate.high, rate.low))
            epoch, derived = Estimate(value, low, high, rate.n), "steps only, without evaluation"
        devices, epochs = record.config.world_size, self._epochs
        if epoch is None:
            return None, ""
        if figure.quantity == "epoch_time":
            return epoch, derived
        if epochs is None:
            return None, ""
        if figure.quantity == "total_time":
            return epoch.scaled(epochs), derived
        if figure.quantity == "device_minutes":
            return epoch.scaled(epochs * devices), derived
        if figure.quantity == "cost" and self._price:
            return epoch.scaled(epochs * devices * self._price), derived
        return None, ""

    def _phase(self, figure: Figure, record: TrialRecord) -> Estimate | None:
        several = record if record.config.world_size > 1 else self._results.headline
        if several is None:
            return None
        if several.trial_id not in self._phases:
            self._phases[several.trial_id] = phase_table(several, self._results.records)
        table = self._phases[several.trial_id]
        row = next((each for each in table.rows if each.name == figure.of), None) if table else None
        if row is None:
            return None
        if figure.quantity == "phase_speedup":
            return row.speedup
        if figure.quantity == "gain_share":
            return row.share_of_gain
        return row.one_share if record.config.world_size == 1 else row.many_share


def _stand_in(results: MeasuredStudy, figures: Sequence[Figure]) -> dict[int, int]:
    """The largest measured world size in place of the smallest published one, where none is the same."""
    theirs = {each.world_size for each in figures if each.world_size and each.world_size > 1}
    ours = {record.config.world_size for record in results.complete if record.config.world_size > 1}
    return {min(theirs): max(ours)} if theirs and ours and not theirs & ours else {}


def _learned(figure: Figure, record: TrialRecord) -> Estimate | None:
    """What a training trial learned, or how long it took, in the figure's epoch, else in the end."""
    if record.training is None:
        return None
    run = TrainedRun(record)
    if figure.quantity == "convergence_epoch":
        value: float | None = run.converged_epoch
    else:
        number = run.best_epoch if figure.quantity == "best_accuracy" else figure.epoch or len(run.epochs)
        epoch = next((each for each in run.epochs if each.epoch == number), None)
        value = _FROM_EPOCH[figure.quantity](epoch) if epoch else None
    return None if value is None else _bare(value)


_FROM_EPOCH: dict[str, Callable[[Epoch], float | None]] = {
    "epoch_time": lambda epoch: epoch.train_s,
    "train_loss": lambda epoch: epoch.train_loss,
    "test_loss": lambda epoch: epoch.test_loss,
    "train_accuracy": lambda epoch: epoch.train_accuracy,
    "accuracy": lambda epoch: epoch.test_accuracy,
    "best_accuracy": lambda epoch: epoch.test_accuracy,
}


def _bare(value: float) -> Estimate:
    """A value of the summary, which has no interval: n is 0."""
    return Estimate(value, value, value, 0)


def _scaled_part(name: str) -> Callable[[TrialRecord, MeasuredStudy], Estimate | None]:
    def find(record: TrialRecord, results: MeasuredStudy) -> Estimate | None:
        found = results.waterfalls[record.trial_id]
        value = getattr(found, name) if found else None
        return value if isinstance(value, Estimate) else None

    return find


def _compute(record: TrialRecord, results: MeasuredStudy) -> Estimate | None:
    found = results.waterfalls[record.trial_id]
    return found.parts.ideal if found else None


_FROM_RECORD: dict[str, Callable[[TrialRecord, MeasuredStudy], Estimate | None]] = {
    "step_time": lambda record, results: results.scaling(record).step_time_s,
    "throughput": lambda record, results: results.scaling(record).throughput_samples_per_s,
    "speedup": lambda record, results: results.scaling(record).speedup,
    "efficiency": lambda record, results: results.scaling(record).efficiency,
    "communication_fraction": _scaled_part("communication_fraction"),
    "communication_time": _scaled_part("replay_s"),
    "compute_to_communication": _scaled_part("compute_to_communication"),
    "compute_time": _compute,
}
