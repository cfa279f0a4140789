"""Figures that others published of a study's experiment, and what was measured here of the same kind.

``studies/published/NAME.csv`` has one row for each figure of the write-up that study NAME repeats. Columns:
``source``; ``table``, where in the write-up; ``hardware``, ``model``, ``strategy``, ``world_size``,
``batch_size`` (per device) and ``epoch``, empty where it says none; ``quantity``; ``of``, what a speed-up is
the ratio of, or a phase's name; ``unit``; ``value`` as printed, the time of day's notation in s; ``within``,
half of what the print leaves open, empty: half of the last digit; ``bound``, low or high, of a range;
``projected``, whether it was projected or expected instead of measured; ``note``.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from raybench.analysis.efficiency import scaling, step_time, throughput
from raybench.analysis.hiding import hiding
from raybench.analysis.phases import PhaseTable, phase_table
from raybench.analysis.results import StudyResults
from raybench.analysis.statistics import Estimate
from raybench.analysis.waterfall import waterfall
from raybench.record import TrialRecord
from raybench.spec.load import studies_folder

UNITS = {  # of the file, in the units of a record
    "": 1.0,
    "x": 1.0,
    "%": 0.01,
    "s": 1.0,
    "ms": 1e-3,
    "min": 60.0,
    "h": 3600.0,
    "samples/s": 1.0,
    "GB": 1e9,
    "device-min": 60.0,
    "USD": 1.0,
    "USD/h": 1 / 3600.0,
}

# What a training trial says of an epoch; without one, what follows from the step time.
TRAINED = frozenset({"epoch_time", "total_time", "device_minutes", "cost", "accuracy"})


@dataclass(frozen=True)
class Figure:
    """One published figure; None where the write-up does not say."""

    source: str
    table: str
    hardware: str
    model: str
    strategy: str | None
    world_size: int | None
    batch_size: int | None  # per device
    epoch: int | None
    quantity: str
    of: str
    unit: str
    printed: str
    within: float  # half of what the print leaves open, in ``unit``
    bound: str
    projected: bool
    note: str

    @property
    def value(self) -> float:
        """In the units of a record: s, bytes, samples/s, ratios."""
        return float(self.printed) * UNITS[self.unit]

    @property
    def low(self) -> float:
        """The least that is printed so, in the unit of ``value``."""
        return (float(self.printed) - self.within) * UNITS[self.unit]

    @property
    def high(self) -> float:
        """The most that is printed so."""
        return (float(self.printed) + self.within) * UNITS[self.unit]

    @property
    def words(self) -> str:
        """The figure with its unit, as printed: 1.78x, 87.5%, 12,369 samples/s."""
        whole, point, decimals = self.printed.partition(".")
        number = f"{int(whole):,}{point}{decimals}" if whole.isdigit() else self.printed
        return in_words(number, self.unit)


@dataclass(frozen=True)
class Measured:
    """What was measured here of a figure's quantity, in the figure's unit."""

    value: float
    low: float | None  # None: the summary has no interval for it
    high: float | None
    n: int | None
    world_size: int
    derived: str = ""  # how it follows from what was measured, where it was not measured itself


@dataclass(frozen=True)
class Pair:
    """A published figure and what stands beside it; None where this study measured no such thing."""

    figure: Figure
    measured: Measured | None


def in_words(number: str, unit: str) -> str:
    """A number with its unit as people write it."""
    return f"{number}{unit}" if unit in ("x", "%", "") else f"{number} {unit}"


def published_path(study: str) -> Path | None:
    """The file of published figures of a study's experiment; None where there is none."""
    folder = studies_folder()
    path = folder / "published" / f"{study}.csv" if folder else None
    return path if path is not None and path.is_file() else None


def load_figures(study: str) -> tuple[Figure, ...]:
    """The published figures of a study's experiment, in the file's order; empty where there are none."""
    path = published_path(study)
    if path is None:
        return ()
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_figure(row) for row in csv.DictReader(file))


def pairs(results: StudyResults, figures: Sequence[Figure]) -> tuple[Pair, ...]:
    """What was measured of each figure's quantity, in the trial of its strategy, world size and batch.

    Where the figures' world sizes were not measured at all, the largest one measured stands beside the
    smallest of theirs. Figures of one epoch, of a range's other bound, and rules of the write-up (a price, a
    number of epochs) have nothing beside them.
    """
    facts = _Facts(results, figures)
    return tuple(Pair(figure, facts.measured(figure)) for figure in figures)


def fact(figures: Sequence[Figure], quantity: str) -> float | None:
    """A figure that holds for the whole experiment, such as its number of epochs."""
    return next((each.value for each in figures if each.quantity == quantity), None)


def epoch_samples(results: StudyResults, figures: Sequence[Figure]) -> float | None:
    """Samples of an epoch: as many as the workload uses, else of the published experiment."""
    asked: int | None = getattr(results.study.workload, "samples", None)
    return float(asked) if asked else fact(figures, "samples")


def _figure(row: dict[str, str]) -> Figure:
    return Figure(
        source=row["source"],
        table=row["table"],
        hardware=row["hardware"],
        model=row["model"],
        strategy=row["strategy"] or None,
        world_size=int(row["world_size"]) if row["world_size"] else None,
        batch_size=int(row["batch_size"]) if row["batch_size"] else None,
        epoch=int(row["epoch"]) if row["epoch"] else None,
        quantity=row["quantity"],
        of=row["of"],
        unit=row["unit"],
        printed=row["value"],
        within=float(row["within"]) if row["within"] else half_digit(row["value"]),
        bound=row["bound"],
        projected=row["projected"] == "true",
        note=row["note"],
    )


def half_digit(printed: str) -> float:
    """Half of the last digit of a printed number: 0.005 for 1.78, 0.5 for 41."""
    mantissa, _, exponent = printed.lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return 0.5 * 10.0**-decimals


class _Facts:
    """What the results know, by quantity."""

    def __init__(self, results: StudyResults, figures: Sequence[Figure]) -> None:
        self._results = results
        self._epochs, self._samples = fact(figures, "epochs"), fact(figures, "samples")
        self._price = fact(figures, "price")
        self._rows = {row.trial_id: row for row in results.summaries}
        self._phases: dict[str, PhaseTable | None] = {}
        self._stand_in = _stand_in(results, figures)

    def measured(self, figure: Figure) -> Measured | None:
        """The quantity of ``figure`` in the trial that is like it."""
        if figure.epoch is not None or figure.world_size is None:
            return None
        record = self._record(figure)
        size = record.request.world_size if record else figure.world_size
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
            derived,
        )

    def _in_rounds(self, figure: Figure) -> Estimate | None:
        """One device without a trial of its own, in the rounds of a trial on several."""
        if figure.world_size != 1 or figure.quantity not in ("step_time", "throughput"):
            return None
        for record in self._results.complete:
            if record.measurement is None:
                continue
            request, found = record.request, scaling(record)
            batch = request.batch_size * (1 if request.scaling == "weak" else request.world_size)
            if batch == figure.batch_size and found.baseline and found.baseline.world_size == 1:
                step_s, samples = found.baseline.step_time_s, batch * request.setting.gradient_accumulation
                if figure.quantity == "step_time":
                    return step_s
                value, low, high = (samples / each for each in (step_s.value, step_s.high, step_s.low))
                return Estimate(value, low, high, step_s.n)
        return None

    def _record(self, figure: Figure) -> TrialRecord | None:
        assert figure.world_size is not None
        size = self._stand_in.get(figure.world_size, figure.world_size)
        default = self._results.study.knobs.default()
        fitting = [
            record
            for record in self._results.complete
            if record.request.role != "confirmation"
            and record.request.world_size == size
            and (size == 1 or figure.strategy in (None, record.request.setting.strategy))
            and figure.batch_size in (None, record.request.batch_size)
        ]
        if figure.quantity in TRAINED:  # a training trial, where there is one, else the steps
            trained = [record for record in fitting if self._rows[record.trial_id].epoch_time_s is not None]
            fitting = trained or [record for record in fitting if record.measurement is not None]
        else:
            fitting = [record for record in fitting if record.measurement is not None]
        # Of several settings the one nearest to the study's default, and a trial with all variants first.
        return min(
            fitting,
            key=lambda record: (
                len(record.request.setting.differences(default)),
                record.request.role != "scaling",
            ),
            default=None,
        )

    def _value(self, figure: Figure, record: TrialRecord) -> tuple[Estimate | None, str]:
        if figure.quantity in _FROM_RECORD:
            return _FROM_RECORD[figure.quantity](record, self._results.records), ""
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

    def _hiding(self) -> Estimate | None:
        found = next((each for each in hiding(self._results) if each.compute_s is not None), None)
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
            rate = throughput(record)
            value, low, high = (self._samples / each for each in (rate.value, rate.high, rate.low))
            epoch, derived = Estimate(value, low, high, rate.n), "steps only, without evaluation"
        devices, epochs = record.request.world_size, self._epochs
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
        several = record if record.request.world_size > 1 else self._results.headline
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
        return row.one_share if record.request.world_size == 1 else row.many_share


def _stand_in(results: StudyResults, figures: Sequence[Figure]) -> dict[int, int]:
    """The largest measured world size in place of the smallest published one, where none is the same."""
    theirs = {each.world_size for each in figures if each.world_size and each.world_size > 1}
    ours = {record.request.world_size for record in results.complete if record.request.world_size > 1}
    return {min(theirs): max(ours)} if theirs and ours and not theirs & ours else {}


def _bare(value: float) -> Estimate:
    """A value of the summary, which has no interval: n is 0."""
    return Estimate(value, value, value, 0)


def _scaled_part(name: str) -> Callable[[TrialRecord, Sequence[TrialRecord]], Estimate | None]:
    def find(record: TrialRecord, others: Sequence[TrialRecord]) -> Estimate | None:
        found = waterfall(record)
        value = getattr(found, name) if found else None
        return value if isinstance(value, Estimate) else None

    return find


def _compute(record: TrialRecord, others: Sequence[TrialRecord]) -> Estimate | None:
    found = waterfall(record)
    return found.parts.ideal if found else None


_FROM_RECORD: dict[str, Callable[[TrialRecord, Sequence[TrialRecord]], Estimate | None]] = {
    "step_time": lambda record, others: step_time(record),
    "throughput": lambda record, others: throughput(record),
    "speedup": lambda record, others: scaling(record, others).speedup,
    "efficiency": lambda record, others: scaling(record, others).efficiency,
    "communication_fraction": _scaled_part("communication_fraction"),
    "communication_time": _scaled_part("replay_s"),
    "compute_to_communication": _scaled_part("compute_to_communication"),
    "compute_time": _compute,
}
