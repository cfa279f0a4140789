"""Figures that others published of a study's experiment, and what was measured of them.

``studies/published/NAME.csv`` has one row for each figure of the write-up that study NAME repeats. Columns:
``source``; ``table``, where in the write-up; ``hardware``, ``model``, ``strategy``, ``world_size``,
``batch_size`` (per device) and ``epoch``, empty where it says none; ``quantity``; ``of``, what a speed-up is
the ratio of, or a phase's name; ``unit``; ``value`` as printed, the time of day's notation in s; ``within``,
half of what the print leaves open, empty: half of the last digit; ``bound``, low or high, of a range;
``origin``, see ``Origin``; ``note``. ``studies/published/sources.csv`` has a row for each write-up;
docs/published.md says where they contradict themselves.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from raybench.analysis.choice import default_setting
from raybench.analysis.cost import epochs_time
from raybench.analysis.phases import phase_times
from raybench.analysis.reference import scaling_first
from raybench.analysis.resolve import Facts
from raybench.analysis.stats.statistics import POSITIVE, SHARE, Estimate
from raybench.analysis.training import TrainedGroup, TrainedRun, over_seeds
from raybench.records.record import TrialRecord
from raybench.records.results import Epoch
from raybench.spec.load import studies_folder

if TYPE_CHECKING:
    from raybench.analysis.results import StudyResults

# measured, or the ratio of two measured figures; computed by the write-up from others, with a price or a
# number of epochs; projected or expected; chosen, so that there is nothing to measure.
Origin = Literal["measured", "computed", "projected", "chosen"]
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
    origin: Origin
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


def in_words(number: str, unit: str) -> str:
    """A number with its unit as people write it."""
    return f"{number}{unit}" if unit in ("x", "%", "") else f"{number} {unit}"


def published_path(study: str) -> Path | None:
    """The file of published figures of a study's experiment; None where there is none."""
    folder = studies_folder()
    path = folder / "published" / f"{study}.csv" if folder else None
    return path if path is not None and path.is_file() else None


@cache
def sources() -> dict[str, str]:
    """Every write-up by its name, as figures have it: title, author, place, date, a remark."""
    words = {}
    for row in rows_of("sources"):
        who = f"by {row['author']}" if row["author"] else "author not named"
        said = [who, row["place"] or "place not named", row["date"] or "undated", row["remark"]]
        words[row["source"]] = f'"{row["title"]}" ({", ".join(filter(None, said))})'
    return words


def load_figures(study: str) -> tuple[Figure, ...]:
    """The published figures of a study's experiment, in the file's order; empty where there are none."""
    return tuple(_figure(row) for row in rows_of(study))


def fact(figures: Sequence[Figure], quantity: str) -> float | None:
    """A figure that holds for the whole experiment, such as its number of epochs."""
    return next((each.value for each in figures if each.quantity == quantity), None)


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of ``published/NAME.csv``, none where there is no such file."""
    path = published_path(name)
    if path is None:
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _origin(word: str) -> Origin:
    return next(known for known in get_args(Origin) if known == word)


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
        origin=_origin(row["origin"]),
        note=row["note"],
    )


def half_digit(printed: str) -> float:
    """Half of the last digit of a printed number: 0.005 for 1.78, 0.5 for 41."""
    mantissa, _, exponent = printed.lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return 0.5 * 10.0**-decimals


TRAINED = ("epoch_time", "total_time")  # by a training where there is one, else by the steps

Value = Callable[[Facts, TrialRecord], Estimate | None]


def _of_waterfall(name: str) -> Value:
    def find(results: Facts, record: TrialRecord) -> Estimate | None:
        found = results.waterfalls[record.trial_id]
        value: Estimate | None = getattr(found, name) if found else None
        return value.as_share if value is not None and name.endswith("fraction") else value

    return find


def _largest(name: str) -> Value:
    """Of what each rank has, the largest; it has no interval."""

    def find(results: Facts, record: TrialRecord) -> Estimate | None:
        values = [each for each in getattr(record.steps, name) or () if each is not None]
        return Estimate(max(values), max(values), max(values), 0) if values else None

    return find


# By quantity: what a trial of steps says of it. Prices and savings are in the table of costs alone.
OF_STEPS: dict[str, Value] = {
    "step_time": lambda results, record: results.scalings[record.trial_id].step_time_s,
    "throughput": lambda results, record: results.scalings[record.trial_id].throughput_samples_per_s,
    "speedup": lambda results, record: results.scaling(record).speedup,
    "efficiency": lambda results, record: results.scaling(record).efficiency,
    "communication_fraction": _of_waterfall("communication_fraction"),
    "overhead_fraction": _of_waterfall("t_comm_fraction"),  # all that more devices add to a step
    "communication_time": _of_waterfall("replay_s"),
    "compute_to_communication": _of_waterfall("compute_to_communication"),
    "compute_time": lambda results, record: (
        found.parts.ideal if (found := results.waterfalls[record.trial_id]) else None
    ),
    "memory": _largest("peak_memory_bytes"),
    "utilization": _largest("device_utilization"),
}
PHASE_SHARE = "phase_share"  # of the step
OF_EPOCH: dict[str, Callable[[Epoch], float | None]] = {
    "loss": lambda epoch: epoch.train_loss,
    "train_loss": lambda epoch: epoch.train_loss,
    "test_loss": lambda epoch: epoch.test_loss,
    "train_accuracy": lambda epoch: epoch.train_accuracy,
    "accuracy": lambda epoch: epoch.test_accuracy,
    "best_accuracy": lambda epoch: epoch.test_accuracy,
}


@dataclass(frozen=True)
class PublishedRow:
    """A published figure, of a range both ends, and what was measured of it."""

    low: Figure  # the only one, where there is no range
    high: Figure
    record: TrialRecord | None
    value: Estimate | None  # in the units of a record; n < 3 of seeds: it has no interval
    is_by_steps: bool = False

    @property
    def words(self) -> str:
        """The figure as printed, of a range both ends: "120 to 150 ms"."""
        if self.low is self.high:
            return {"low": "at least ", "high": "at most "}.get(self.low.bound, "") + self.low.words
        return f"{self.low.printed} to {self.high.words}"

    @property
    def has_interval(self) -> bool:
        """Whether the value has one."""
        return self.value is not None and self.value.low < self.value.high


def published_rows(results: StudyResults, published: Sequence[Figure]) -> list[PublishedRow]:
    """Measured quantities of a number of devices, each once, a range as one row."""
    find = _Trials(results, published)
    epochs, samples = fact(published, "epochs"), results.epoch_samples or fact(published, "samples")
    if results.study.training:
        epochs = results.study.training.epochs
    ends: dict[tuple[object, ...], PublishedRow] = {}
    for figure in published:
        known_here = figure.quantity in (*OF_STEPS, *OF_EPOCH, *TRAINED, PHASE_SHARE)
        if figure.world_size is None or figure.origin == "chosen" or not known_here:
            continue
        end = (*_of(figure), figure.source, figure.table, figure.hardware)
        if figure.bound == "high" and end in ends:
            ends[end] = replace(ends[end], high=figure)
        elif (record := find.trial(figure)) is not None:
            value, is_by_steps = _value(results, find, figure, record, epochs, samples)
            key = end if figure.bound else (*end, figure.words)
            ends[key] = PublishedRow(figure, figure, record, value, is_by_steps)
    once: dict[tuple[object, ...], PublishedRow] = {}
    for row in ends.values():
        once.setdefault((*_of(row.low), row.words), row)
    return list(once.values())


def _of(figure: Figure) -> tuple[object, ...]:
    """What a figure is of."""
    return (
        figure.quantity, figure.of, figure.strategy, figure.world_size, figure.batch_size, figure.epoch
    )  # fmt: skip


class _Trials:
    """Which trial and which training stand next to a published figure.

    Where the figures' world sizes were not measured at all, the largest one measured stands in for the
    smallest of theirs. So with batches: the largest for the largest, the second for the second.
    """

    def __init__(self, results: StudyResults, published: Sequence[Figure]) -> None:
        aside = ("verification",)
        self._results = results
        self._records = [each for each in results.complete if each.request.role not in aside]
        self._training = results.training
        theirs = {each.world_size for each in published if each.world_size and each.world_size > 1}
        ours = {each.config.world_size for each in results.complete if each.config.world_size > 1}
        apart = theirs and ours and not theirs & ours
        self._sizes = {min(theirs): max(ours)} if apart else {}
        self._batches = {size: self._batch_stand_in(size, published) for size in {1, *theirs}}

    def _at(self, world_size: int) -> list[TrialRecord]:
        size = self._sizes.get(world_size, world_size)
        return [each for each in self._records if each.config.world_size == size]

    def _batch_stand_in(self, world_size: int, published: Sequence[Figure]) -> dict[int, int]:
        theirs = {each.batch_size for each in published if each.world_size == world_size and each.batch_size}
        ours = {each.config.batch_size for each in self._at(world_size)}
        if theirs & ours:
            return {}
        return dict(zip(sorted(theirs, reverse=True), sorted(ours, reverse=True), strict=False))

    def trial(self, figure: Figure) -> TrialRecord | None:
        """Of several settings the one nearest to the study's default."""
        assert figure.world_size is not None
        batch = figure.batch_size and self._batches[figure.world_size].get(
            figure.batch_size, figure.batch_size
        )
        fitting = [
            each
            for each in self._at(figure.world_size)
            if (each.config.world_size == 1 or figure.strategy in (None, each.config.setting.strategy))
            and batch in (None, each.config.batch_size)
        ]
        learned = figure.epoch is not None or figure.quantity in OF_EPOCH
        wants_training = learned or figure.quantity in TRAINED or figure.of in TRAINED
        trained = [each for each in fitting if each.training is not None] if wants_training else []
        steps = [] if learned else [each for each in fitting if each.steps is not None]
        default = default_setting(self._results.study)
        return min(
            scaling_first(trained or steps),
            key=lambda record: len(record.config.setting.differences(default)),
            default=None,
        )

    def group(self, record: TrialRecord) -> TrainedGroup | None:
        """The training of ``record`` with all seeds."""
        groups = self._training.groups if self._training else ()
        return next((each for each in groups if any(run.record is record for run in each.runs)), None)


def _value(
    results: StudyResults,
    find: _Trials,
    figure: Figure,
    record: TrialRecord,
    epochs: float | None,
    samples: float | None,
) -> tuple[Estimate | None, bool]:
    """The figure's quantity in a trial, and whether it follows from its steps."""
    quantity, group = figure.quantity, find.group(record)
    if quantity in OF_EPOCH or figure.epoch is not None:
        bounds = SHARE if quantity.endswith("accuracy") else POSITIVE
        return over_seeds((_learned(run, figure) for run in group.runs), bounds) if group else None, False
    if quantity == PHASE_SHARE:
        phases = phase_times(record, results.waterfalls[record.trial_id]) if record.steps else {}
        times_s = {str(name): time_s for name, time_s in phases.items()}
        step_s = results.scalings[record.trial_id].step_time_s.value if times_s else 1.0
        return times_s[figure.of].scaled(1 / step_s) if figure.of in times_s else None, False
    if quantity in OF_STEPS:
        if group is None:
            return OF_STEPS[quantity](results, record), False
        each = results.training.comparison(group) if results.training else None
        if each is None or quantity != "speedup":
            return None, False
        return each.epoch_speedup if figure.of == "epoch_time" else each.total_speedup, False
    epoch_s = group.epoch_time_s if group else None
    if epoch_s is None and samples and record.steps is not None:
        epoch_s = epochs_time(record, samples, 1, results.scaling(record).mean_step_s)
    if quantity == "epoch_time" or epoch_s is None or epochs is None:
        return epoch_s if quantity == "epoch_time" else None, group is None
    return (group.total_s if group else None) or epoch_s.scaled(epochs), group is None


def _learned(run: TrainedRun, figure: Figure) -> float | None:
    """The figure's quantity with one seed, in its epoch, else in the last."""
    number = run.best_epoch if figure.quantity == "best_accuracy" else figure.epoch or len(run.epochs)
    epoch = next((each for each in run.epochs if each.epoch == number), None)
    if epoch is None:
        return None
    return epoch.train_s if figure.quantity == "epoch_time" else OF_EPOCH[figure.quantity](epoch)
