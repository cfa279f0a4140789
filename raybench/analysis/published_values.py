"""What a trial says of the quantity of a published figure, or why it says nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raybench.analysis.cost import energy_ratio, less
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.overlap import BatchOverlap
from raybench.analysis.published import Figure
from raybench.analysis.stats.efficiency import epochs_time, restart_time, steps_time
from raybench.analysis.stats.phases import PhaseTable, phase_table
from raybench.analysis.stats.statistics import LEAST_VALUES, POSITIVE, SHARE, Estimate
from raybench.analysis.summary import TrialSummary
from raybench.analysis.training import Comparison, TrainedGroup, TrainedRun, TrainingResults, over_seeds
from raybench.records.record import TrialRecord
from raybench.records.trainings import Epoch
from raybench.spec.counted import counted

# What a training trial says of an epoch or a run; without one, what follows from the step time.
TRAINED = frozenset(
    {"epoch_time", "total_time", "device_minutes", "cost", "accuracy", "time_saved", "time_saved_in_runs"}
)
# What only a training trial says. A loss of no named samples stands beside a training accuracy there.
LEARNED = frozenset(
    {"loss", "train_loss", "test_loss", "train_accuracy", "best_accuracy", "convergence_epoch"}
)
NOT_TRAINED = "no model was trained"
NO_SEED = "no seed was trained on one device and on several"
# How a value follows from what was measured.
BY_STEPS = "From the throughput of steps, without evaluation"
BY_STEPS_AND_RESTARTS = (
    "From the throughput of steps and a restart of the loader in each epoch, without evaluation"
)
OF_TRAINING = "The training loss of the last epoch"


@dataclass(frozen=True)
class Found:
    """What was measured, in the units of a record; n = 0: it has no interval. None, and why not."""

    value: Estimate | None
    derived: str = ""  # how it follows from what was measured, where it was not measured itself
    why_not: str = ""


@dataclass(frozen=True)
class Run:
    """What an epoch and a whole run are; None where nothing says."""

    epochs: float | None
    samples: float | None  # of an epoch
    price: float | None  # of one device, in money per s
    runs: float | None  # for which the write-up counts its savings


class Values:
    """The quantities of a study's trials, asked for by published figures."""

    def __init__(
        self,
        results: MeasuredStudy,
        run: Run,
        summaries: dict[str, TrialSummary],
        training: TrainingResults | None,
        hidden: tuple[BatchOverlap, ...],
    ) -> None:
        self._results, self._run, self._rows = results, run, summaries
        self._training, self._hidden = training, hidden
        self._phases: dict[str, PhaseTable | None] = {}

    def of(self, figure: Figure, record: TrialRecord) -> Found:
        """The quantity of ``figure`` in ``record``."""
        quantity = figure.quantity
        if figure.epoch is not None or quantity in LEARNED or quantity == "accuracy":
            return self._learned(figure, record)
        if quantity == "speedup" and record.training is not None:
            return self._trained_speedup(figure, record)
        if quantity in _FROM_RECORD:
            value = _FROM_RECORD[quantity](record, self._results)
            return Found(value, why_not="the variants that it follows from are missing")
        if quantity in ("phase_time", "phase_share", "phase_speedup", "gain_share"):
            return self._phase(figure, record)
        if quantity in _FROM_SUMMARY:
            name, why_not = _FROM_SUMMARY[quantity]
            value = getattr(self._rows[record.trial_id], name)
            return Found(None if value is None else _bare(value), why_not=why_not)
        if quantity == "hiding_compute":
            return Found(self._hiding(), why_not="no batch that was measured hides its communication")
        if quantity == "energy_ratio":
            ratio = energy_ratio(self._results, record)
            why_not = "energy was not told for one device and for several"
            return Found(None if ratio is None else _bare(ratio), why_not=why_not)
        if quantity in ("time_saved", "time_saved_in_runs"):
            return self._time_saved(figure, record)
        return self._over_epochs(quantity, record)

    def _group(self, record: TrialRecord) -> TrainedGroup | None:
        """The training of ``record`` with all seeds."""
        groups = self._training.groups if self._training else ()
        return next((group for group in groups if any(run.record is record for run in group.runs)), None)

    def _learned(self, figure: Figure, record: TrialRecord) -> Found:
        """What training learned, or how long it took, in the figure's epoch, else in the end: over seeds."""
        group = self._group(record)
        if group is None:
            return Found(None, why_not=NOT_TRAINED)
        if figure.epoch is not None and figure.epoch > group.num_epochs:
            return Found(None, why_not=f"trained {counted(group.num_epochs, 'epoch')} in all")
        bounds = SHARE if figure.quantity.endswith("accuracy") else POSITIVE
        value = _of_seeds(over_seeds((_learned_in(run, figure) for run in group.runs), bounds))
        derived = OF_TRAINING if figure.quantity == "loss" else ""
        return Found(value, derived, "it was not evaluated")

    def _comparison(self, record: TrialRecord) -> Comparison | None:
        """The training of ``record`` and of the other seeds against one device's."""
        group = self._group(record)
        return self._training.comparison(group) if self._training and group else None

    def _trained_speedup(self, figure: Figure, record: TrialRecord) -> Found:
        """Of the epochs or the whole of a training over one device's."""
        each = self._comparison(record)
        if each is None:
            return Found(None, why_not="not trained on one device")
        found = each.epoch_speedup if figure.of == "epoch_time" else each.total_speedup
        return Found(_of_seeds(found), why_not=NO_SEED)

    def _hiding(self) -> Estimate | None:
        found = next((each for each in self._hidden if each.compute_s is not None), None)
        if found is None or found.compute_s is None:
            return None
        if found.low_s is None or found.high_s is None:
            return _bare(found.compute_s)
        return Estimate(found.compute_s, found.low_s, found.high_s, min(p.fraction.n for p in found.points))

    def _over_epochs(self, quantity: str, record: TrialRecord) -> Found:
        """Times and costs of epochs: of a training, else of steps where the samples are known.

        A run of a training has its evaluations in it.
        """
        group = self._group(record)
        epoch, derived = _of_seeds(group.epoch_time_s) if group else None, ""
        if epoch is None and self._run.samples and record.steps is not None:
            rate = self._results.reported[record.trial_id].throughput_samples_per_s
            epoch = epochs_time(record, self._run.samples, 1, rate)
            derived = BY_STEPS if restart_time(record) is None else BY_STEPS_AND_RESTARTS
        if epoch is None:
            return Found(None, why_not="the samples of an epoch are not known")
        devices, epochs, price = record.config.world_size, self._run.epochs, self._run.price
        if quantity == "epoch_time":
            return Found(epoch, derived)
        if epochs is None:
            return Found(None, why_not="the epochs of a run are not known")
        total = (_of_seeds(group.total_s) if group else None) or epoch.scaled(epochs)
        if quantity == "total_time":
            return Found(total, derived)
        if quantity == "device_minutes":
            return Found(total.scaled(devices), derived)
        if quantity == "cost":
            money = total.scaled(devices * price) if price else None
            return Found(money, derived, "no price is known")
        return Found(None, why_not="raybench measures no such quantity")

    def _time_saved(self, figure: Figure, record: TrialRecord) -> Found:
        """The time of a run on one device less that on several: by the paired speed-up, as savings are."""
        runs = 1.0 if figure.quantity == "time_saved" else self._run.runs
        total = self._over_epochs("total_time", record)
        if total.value is None or runs is None:
            return total
        value, derived = total.value, total.derived
        if record.training is not None:
            each = self._comparison(record)
            speedup = each.total_speedup if each else None
        else:
            found = self._results.scaling(record)
            speedup = found.speedup if found.baseline and found.baseline.world_size == 1 else None
            if self._run.samples and self._run.epochs:  # restarts count alike on one device and on several
                samples = self._run.samples * self._run.epochs
                value, derived = steps_time(record, samples, found.throughput_samples_per_s), BY_STEPS
        if speedup is None:
            return Found(None, why_not="not measured on one device")
        saved = less(speedup, 1.0).scaled(value.value * runs)
        return Found(saved if speedup.low < speedup.high else _bare(saved.value), derived)

    def _phase(self, figure: Figure, record: TrialRecord) -> Found:
        several = record if record.config.world_size > 1 else self._results.headline
        if several is None:
            return Found(None, why_not="no trial on several devices")
        if several.trial_id not in self._phases:
            self._phases[several.trial_id] = phase_table(several, self._results.records)
        table = self._phases[several.trial_id]
        row = next((each for each in table.rows if each.name == figure.of), None) if table else None
        if table is None or row is None:
            return Found(None, why_not="the phases of one device and of several were not both measured")
        if figure.quantity == "phase_speedup":
            return Found(row.speedup, why_not="a phase takes too little time to have a speed-up")
        if figure.quantity == "gain_share":
            return Found(row.share_of_gain, why_not="there is no gain to share")
        alone = record.config.world_size == 1
        if figure.quantity == "phase_share":
            return Found(row.one_share if alone else row.many_share, why_not="no such phase on one device")
        if self._run.samples is None:
            return Found(None, why_not="the samples of an epoch are not known")
        step_s = row.one_s if alone else row.many_s
        epoch_s = step_s.scaled(self._run.samples / table.samples) if step_s else None
        return Found(epoch_s, BY_STEPS, "no such phase on one device")


_FROM_EPOCH: dict[str, Callable[[Epoch], float | None]] = {
    "epoch_time": lambda epoch: epoch.train_s,
    "loss": lambda epoch: epoch.train_loss,
    "train_loss": lambda epoch: epoch.train_loss,
    "test_loss": lambda epoch: epoch.test_loss,
    "train_accuracy": lambda epoch: epoch.train_accuracy,
    "accuracy": lambda epoch: epoch.test_accuracy,
    "best_accuracy": lambda epoch: epoch.test_accuracy,
}


def _learned_in(run: TrainedRun, figure: Figure) -> float | None:
    """The figure's quantity with one seed."""
    if figure.quantity == "convergence_epoch":
        return run.converged_epoch
    number = run.best_epoch if figure.quantity == "best_accuracy" else figure.epoch or len(run.epochs)
    epoch = next((each for each in run.epochs if each.epoch == number), None)
    return None if epoch is None else _FROM_EPOCH[figure.quantity](epoch)


def _of_seeds(estimate: Estimate | None) -> Estimate | None:
    """Without an interval where there are too few seeds."""
    return _bare(estimate.value) if estimate is not None and estimate.n < LEAST_VALUES else estimate


def _bare(value: float) -> Estimate:
    """A value without an interval: n is 0."""
    return Estimate(value, value, value, 0)


# By quantity: the column of the summary, and why it may be empty.
_FROM_SUMMARY = {
    "memory": ("peak_memory_bytes", "torch does not count memory on CPUs"),
    "utilization": ("device_utilization", "the device does not tell how busy it is"),
}


def _scaled_part(name: str) -> Callable[[TrialRecord, MeasuredStudy], Estimate | None]:
    def find(record: TrialRecord, results: MeasuredStudy) -> Estimate | None:
        found = results.waterfalls[record.trial_id]
        value = getattr(found, name) if found else None
        if not isinstance(value, Estimate):
            return None
        return value.as_share if name.endswith("fraction") else value

    return find


def _compute(record: TrialRecord, results: MeasuredStudy) -> Estimate | None:
    found = results.waterfalls[record.trial_id]
    return found.parts.ideal if found else None


_FROM_RECORD: dict[str, Callable[[TrialRecord, MeasuredStudy], Estimate | None]] = {
    "step_time": lambda record, results: results.reported[record.trial_id].step_time_s,
    "throughput": lambda record, results: results.reported[record.trial_id].throughput_samples_per_s,
    "speedup": lambda record, results: results.scaling(record).speedup,
    "efficiency": lambda record, results: results.scaling(record).efficiency,
    "communication_fraction": _scaled_part("communication_fraction"),
    "overhead_fraction": _scaled_part("t_comm_fraction"),  # all that more devices add to a step
    "communication_time": _scaled_part("replay_s"),
    "compute_to_communication": _scaled_part("compute_to_communication"),
    "compute_time": _compute,
}
