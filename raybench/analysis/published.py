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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from raybench.analysis.choice import default_setting
from raybench.analysis.phases import SYNCHRONIZATION, phase_times
from raybench.analysis.reference import scaling_first
from raybench.analysis.resolve import Facts
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.training import TrainedGroup, TrainingResults
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.load import studies_folder

if TYPE_CHECKING:
    from raybench.analysis.results import StudyResults

# measured, or the ratio of two measured figures; computed by the write-up from others, with a price or a
# number of epochs; projected or expected; chosen, so that there is nothing to measure.
Origin = Literal["measured", "computed", "projected", "chosen"]
UNITS = {  # of what is compared, in the units of a record
    "": 1.0,
    "x": 1.0,
    "%": 0.01,
    "s": 1.0,
    "ms": 1e-3,
    "min": 60.0,
    "samples/s": 1.0,
    "GB": 1e9,
    "USD": 1.0,
}


@dataclass(frozen=True)
class Figure:
    """One published figure; None where the write-up does not say."""

    source: str
    table: str
    hardware: str
    strategy: str | None
    world_size: int | None
    batch_size: int | None  # per device
    epoch: int | None
    quantity: str
    of: str
    unit: str
    printed: str
    bound: str
    origin: Origin
    note: str

    @property
    def value(self) -> float:
        """In the units of a record: s, bytes, samples/s, ratios."""
        return float(self.printed) * UNITS[self.unit]


def load_figures(study: str) -> tuple[Figure, ...]:
    """The published figures of a study's experiment, in the file's order; empty where there are none."""
    return tuple(map(_figure, rows_of(study)))


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of ``studies/published/NAME.csv``, none where there is no such file."""
    folder = studies_folder()
    path = folder / "published" / f"{name}.csv" if folder else None
    if path is None or not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _figure(row: dict[str, str]) -> Figure:
    fields: dict[str, Any] = {name: row[name] for name in row.keys() - {"model", "value", "within"}}
    fields |= {name: int(row[name]) if row[name] else None for name in ("world_size", "batch_size", "epoch")}
    return Figure(**fields | {"strategy": row["strategy"] or None, "printed": row["value"]})


def fact(figures: Sequence[Figure], quantity: str) -> float | None:
    """A figure that holds for the whole experiment, such as its number of epochs."""
    return next((each.value for each in figures if each.quantity == quantity), None)


def _of_waterfall(name: str) -> Callable[[Facts, TrialRecord], Estimate | None]:
    return lambda results, record: (
        getattr(found, name) if (found := results.waterfalls[record.trial_id]) else None
    )


def _over_one(name: str) -> Callable[[Facts, TrialRecord], Estimate | None]:
    """What was published is over one device."""

    def find(results: Facts, record: TrialRecord) -> Estimate | None:
        found = results.scaling(record)
        return getattr(found, name) if found.one_device else None

    return find


def _largest(name: str) -> Callable[[Facts, TrialRecord], Estimate | None]:
    """Of what each rank has, the largest; it has no interval."""

    def find(results: Facts, record: TrialRecord) -> Estimate | None:
        values = [each for each in getattr(record.steps, name) or () if each is not None]
        return Estimate(max(values), max(values), max(values), 0) if values else None

    return find


# By quantity: what a trial of steps says of it. Prices and savings are in the table of costs alone.
OF_STEPS: dict[str, Callable[[Facts, TrialRecord], Estimate | None]] = {
    "step_time": lambda results, record: results.scaling(record).step_time_s,
    "throughput": lambda results, record: results.scaling(record).throughput_samples_per_s,
    "speedup": _over_one("speedup"),
    "efficiency": _over_one("efficiency"),
    "communication_fraction": _of_waterfall("communication_fraction"),
    "overhead_fraction": _of_waterfall("t_comm_fraction"),  # all that more devices add to a step
    "communication_time": _of_waterfall("replay_s"),
    "compute_to_communication": _of_waterfall("compute_to_communication"),
    "compute_time": _of_waterfall("compute_s"),
    "memory": _largest("peak_memory_bytes"),
    "utilization": _largest("device_utilization"),
}
# What a training says of it, after the last epoch.
OF_TRAINING: dict[str, Callable[[TrainedGroup], Estimate | None]] = {
    "epoch_time": lambda group: group.epoch_time_s,
    "total_time": lambda group: group.total_s,
    "loss": lambda group: group.epochs[-1].train_loss,
    "train_accuracy": lambda group: group.epochs[-1].train_accuracy,
    "accuracy": lambda group: group.final_accuracy,
    "best_accuracy": lambda group: group.best_accuracy,
}


@dataclass(frozen=True)
class PublishedRow:
    """One quantity on a number of devices: what was published of it, and what was measured."""

    figures: tuple[Figure, ...]  # every print of it, of a range both ends
    config: Configuration  # that was measured
    value: Estimate  # in the units of a record; fewer than three seeds have no interval
    is_by_steps: bool = False  # the time of a training that follows from its steps


def published_rows(results: StudyResults, published: Sequence[Figure]) -> list[PublishedRow]:
    """Each result that was published of a number of devices, and measured here too; in the file's order.

    Of a training a figure is of its end: epochs.csv has what each epoch came to.
    """
    prints = dict[tuple[object, ...], list[Figure]]()
    for each in published:
        if each.world_size is not None and each.epoch is None and each.origin != "chosen":
            what = (each.quantity, each.of, each.strategy, each.world_size, each.batch_size, each.hardware)
            prints.setdefault(what, []).append(each)
    steps = [each for each in scaling_first(results.measured) if each.request.role != "verification"]
    groups = results.training.groups if results.training else ()
    configs = [*(each.config for each in steps), *(each.config for each in groups)]
    rows, key = [], results.fit.buckets.key
    for figures in prints.values():
        place = figures[0].strategy, *_size_and_batch(figures[0], published, configs)
        record = _nearest(results, steps, *place)
        # of the setting whose steps are shown: two rows of one place are not of two settings
        same = [each for each in groups if record is None or key(each.config) == key(record.config)]
        group = _nearest(results, same, *place)
        trained = _as_trained(results.training, group, figures[0]) if results.training and group else None
        if trained is not None and group is not None:
            rows.append(PublishedRow(tuple(figures), group.config, trained))
        elif record is not None:
            value = _by_steps(results, record, figures[0], published)
            if value is not None:
                is_total = figures[0].quantity in ("epoch_time", "total_time")
                rows.append(PublishedRow(tuple(figures), record.config, value, is_total))
    return rows


def _size_and_batch(
    figure: Figure, published: Sequence[Figure], configs: Sequence[Configuration]
) -> tuple[int, int | None]:
    """The world size, and the batch if the figure has one, that are compared with it.

    Where none of the published world sizes was measured, the largest one measured stands in for the largest
    of theirs, the second for the second; so with the batches of a world size.
    """
    sizes = _stand_ins(
        (each.world_size for each in published if each.world_size and each.world_size > 1),
        (each.world_size for each in configs if each.world_size > 1),
    )
    assert figure.world_size is not None
    size = sizes.get(figure.world_size, figure.world_size)
    batches = _stand_ins(
        (each.batch_size for each in published if each.world_size == figure.world_size and each.batch_size),
        (each.batch_size for each in configs if each.world_size == size),
    )
    return size, figure.batch_size and batches.get(figure.batch_size, figure.batch_size)


def _stand_ins(theirs: Iterable[int], ours: Iterable[int]) -> dict[int, int]:
    """The largest of ours for the largest of theirs, and so on; empty where they have one in common."""
    one, other = (sorted(set(each), reverse=True) for each in (theirs, ours))
    return {} if set(one) & set(other) else dict(zip(one, other, strict=False))


Tried = TypeVar("Tried", TrialRecord, TrainedGroup)


def _nearest(
    results: Facts, tried: Iterable[Tried], strategy: str | None, world_size: int, batch_size: int | None
) -> Tried | None:
    """Of what was measured there the one nearest to the study's default."""
    there = [
        each
        for each in tried
        if each.config.world_size == world_size
        and batch_size in (None, each.config.batch_size)
        and (world_size == 1 or strategy in (None, each.config.setting.strategy))
    ]
    default = default_setting(results.study)
    return min(there, key=lambda each: len(each.config.setting.differences(default)), default=None)


def _as_trained(training: TrainingResults, group: TrainedGroup, figure: Figure) -> Estimate | None:
    comparison, value = training.comparison(group), OF_TRAINING.get(figure.quantity)
    if figure.quantity == "speedup" and comparison is not None:
        return {"epoch_time": comparison.epoch_speedup, "total_time": comparison.total_speedup}.get(figure.of)
    return value(group) if value is not None else None


def _by_steps(
    results: StudyResults, record: TrialRecord, figure: Figure, published: Sequence[Figure]
) -> Estimate | None:
    """The figure's quantity in a trial of steps."""
    scaling, quantity = results.scaling(record), figure.quantity
    if quantity == "phase_share":  # of the step
        if figure.of == SYNCHRONIZATION:
            return OF_STEPS["communication_fraction"](results, record)
        phases = phase_times(record, scaling.step_time_s, results.waterfalls[record.trial_id])
        time_s = next((time_s for name, time_s in phases.items() if name == figure.of), None)
        return time_s and time_s.scaled(1 / scaling.step_time_s.value)
    if quantity in ("epoch_time", "total_time"):
        training = results.study.training
        samples = results.epoch_samples or fact(published, "samples")
        epochs = training.epochs if training else fact(published, "epochs")
        number = 1 if quantity == "epoch_time" else epochs
        if not samples or not number:
            return None
        return scaling.mean_step_s.scaled(number * samples / scaling.samples)
    value = OF_STEPS.get(quantity)
    return value(results, record) if value else None
