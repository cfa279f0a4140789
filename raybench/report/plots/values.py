"""What each plot shows, as values that tests can assert on; ``plots`` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.curves import Curve
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.results import StudyResults
from raybench.analysis.training import TrainedGroup, over_seeds
from raybench.records.requests import Variant
from raybench.report.wording import PART_WORDS

MOST_CURVES = 6  # more cannot be told apart
MOST_CONFIGURATIONS, WORST_CONFIGURATIONS = 14, 4
VARIANT_WORDS: dict[Variant, str] = {
    "base": "one device, global batch",
    "plain": "one device alone",
    "crowd": "all devices, no communication",
    "local": "DDP without transfers",
    "synced": "DDP",
    "versus": "the default",
}


@dataclass(frozen=True)
class Point:
    """A value with its interval, at an abscissa."""

    x: float
    estimate: Estimate


@dataclass(frozen=True)
class Line:
    """One labelled series."""

    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class ScalingPlot:
    """Throughput in samples/s and efficiency over the world size."""

    world_sizes: tuple[int, ...]
    throughput: tuple[Line, ...]
    efficiency: tuple[Line, ...]
    ideal: tuple[tuple[int, float], ...]  # of the first curve, from its smallest world size, in samples/s
    num_left_out: int  # curves beyond those that a plot can hold
    rounds: tuple[int, int]  # fewest and most behind a point


@dataclass(frozen=True)
class BatchPlot:
    """Efficiency over the batch at one world size."""

    world_size: int
    strong: bool
    lines: tuple[Line, ...]
    crossover: float | None  # of the first line, interpolated
    rounds: tuple[int, int]

    @property
    def break_even(self) -> float:
        """The efficiency at which more devices are as fast as one."""
        return 1 / self.world_size


@dataclass(frozen=True)
class BatchScalingPlot:
    """Throughput in samples/s and speed-up over the devices, a line for each batch."""

    world_sizes: tuple[int, ...]
    strong: bool
    throughput: tuple[Line, ...]
    speedup: tuple[Line, ...]
    ideal: tuple[float, ...]  # of each line, samples/s for each device
    serial_fraction: tuple[float, ...]  # of each line at its largest world size: Amdahl's f
    num_left_out: int
    rounds: tuple[int, int]


@dataclass(frozen=True)
class ConfigurationsPlot:
    """Speed-up, efficiency and throughput of each configuration on so many devices, the best first."""

    world_size: int
    labels: tuple[str, ...]
    speedup: tuple[Estimate, ...]
    efficiency: tuple[Estimate, ...]
    throughput: tuple[Estimate, ...]  # samples/s
    num_left_out: int
    rounds: tuple[int, int]


@dataclass(frozen=True)
class Bar:
    """One part of a step, from where the last one ended."""

    label: str
    start_s: float
    part: Estimate  # s


@dataclass(frozen=True)
class WaterfallPlot:
    """A step from ideal to measured."""

    title: str
    bars: tuple[Bar, ...]
    step_time_s: Estimate


@dataclass(frozen=True)
class Distribution:
    """Sorted times of one variant, in s."""

    label: str
    sorted_s: NDArray[np.float64]


@dataclass(frozen=True)
class StepTimePlot:
    """The distribution of step times, or of block means where there are no samples."""

    title: str
    of_steps: bool
    distributions: tuple[Distribution, ...]


def scaling_plot(results: StudyResults) -> ScalingPlot | None:
    """The scaling curves, the default's and the fastest ones first; None where no world size exceeds 1."""
    if not any(point.world_size > 1 for curve in results.curves for point in curve.points):
        return None

    def speed(curve: Curve) -> tuple[bool, int, float]:
        last = curve.points[-1]
        return curve.is_default, last.world_size, last.throughput_samples_per_s.value

    shown = sorted(results.curves, key=speed, reverse=True)[:MOST_CURVES]
    throughput = tuple(
        _line(c.label, [(p.world_size, p.throughput_samples_per_s) for p in c.points]) for c in shown
    )
    efficiency = tuple(_line(c.label, [(p.world_size, p.efficiency) for p in c.points]) for c in shown)
    sizes = tuple(sorted({point.world_size for curve in shown for point in curve.points}))
    start = shown[0].points[0]
    per_device = start.throughput_samples_per_s.value / start.world_size
    return ScalingPlot(
        world_sizes=sizes,
        throughput=throughput,
        efficiency=tuple(line for line in efficiency if line.points),
        ideal=tuple((size, per_device * size) for size in sizes),
        num_left_out=len(results.curves) - len(shown),
        rounds=_rounds(throughput),
    )


def batch_plot(results: StudyResults) -> BatchPlot | None:
    """Efficiency against batch at the headline's world size; None where only one batch was measured."""
    curves = results.batch_curves[:MOST_CURVES]
    if not curves:
        return None
    lines = tuple(_line(c.label, [(p.batch_size, p.efficiency) for p in c.points]) for c in curves)
    passage = curves[0].crossover
    strong = results.study.scaling.mode == "strong"
    batch = passage.batch if passage else None
    return BatchPlot(curves[0].world_size, strong, lines, batch, _rounds(lines))


def batch_scaling_plot(results: StudyResults) -> BatchScalingPlot | None:
    """Every batch over the devices; None where fewer than two batches were measured on several."""
    every = results.batch_lines
    if len(every) < 2:
        return None
    places = np.unique(np.linspace(0, len(every) - 1, min(len(every), MOST_CURVES)).round().astype(int))
    shown = [every[place] for place in places]  # the smallest, the largest, and some between
    labels = [f"batch {line.batch_size:,}" for line in shown]
    if len({line.label for line in shown}) > 1:
        labels = [f"{label}, {line.label}" for label, line in zip(labels, shown, strict=True)]
    throughput, speedup = (
        tuple(
            _line(label, [(point.world_size, getattr(point, name)) for point in line.points])
            for label, line in zip(labels, shown, strict=True)
        )
        for name in ("throughput_samples_per_s", "speedup")
    )
    last = [line.points[-1].serial_fraction for line in shown]
    return BatchScalingPlot(
        world_sizes=tuple(sorted({point.world_size for line in shown for point in line.points})),
        strong=results.study.scaling.mode == "strong",
        throughput=throughput,
        speedup=speedup,
        ideal=tuple(line.points[0].throughput_samples_per_s.value for line in shown),
        serial_fraction=tuple(fraction.value for fraction in last if fraction is not None),
        num_left_out=len(every) - len(shown),
        rounds=_rounds(throughput),
    )


def configurations_plot(results: StudyResults) -> ConfigurationsPlot | None:
    """The configurations, the best first; None where fewer than two have a baseline."""
    every = results.configurations
    known = [
        (each, each.scaling.speedup, each.scaling.efficiency)
        for each in every
        if each.scaling.speedup is not None and each.scaling.efficiency is not None
    ]
    if len(known) < 2:
        return None
    shown = known
    if len(known) > MOST_CONFIGURATIONS:  # the slowest stay: they are why one looks
        shown = [*known[: MOST_CONFIGURATIONS - WORST_CONFIGURATIONS], *known[-WORST_CONFIGURATIONS:]]
    throughput = tuple(each.scaling.throughput_samples_per_s for each, _, _ in shown)
    return ConfigurationsPlot(
        world_size=shown[0][0].record.config.world_size,
        labels=tuple(each.label for each, _, _ in shown),
        speedup=tuple(speedup for _, speedup, _ in shown),
        efficiency=tuple(efficiency for _, _, efficiency in shown),
        throughput=throughput,
        num_left_out=len(known) - len(shown),
        rounds=(min(each.n for each in throughput), max(each.n for each in throughput)),
    )


def waterfall_plot(results: StudyResults) -> WaterfallPlot | None:
    """The headline's step taken apart; None on one device."""
    found = results.waterfall
    if found is None or found.world_size == 1:
        return None
    bars, end_s = [], 0.0
    for name, part in found.parts.present().items():
        bars.append(Bar(PART_WORDS[name], end_s, part))
        end_s += part.value
    return WaterfallPlot(_headline_title(results), tuple(bars), found.step_time_s)


def step_time_plot(results: StudyResults, samples_dir: Path | None) -> StepTimePlot | None:
    """Step times of the headline by variant; each step counts once, by its slowest rank.

    Without a parquet file (columns variant, round, rank, step, step_time_s) the blocks' means take their
    place.
    """
    record = results.headline
    if record is None or record.steps is None:
        return None
    path = samples_dir / f"{record.trial_id}.parquet" if samples_dir else None
    times = _sample_times(path) if path is not None and path.is_file() else {}
    of_steps = bool(times)
    for variant in VARIANT_WORDS if not of_steps else ():
        blocks = [block for each in record.steps.rounds if (block := each.block(variant))]
        times[variant] = np.array([block.slowest_s for block in blocks])
    distributions = tuple(
        Distribution(words, np.sort(times[variant]))
        for variant, words in VARIANT_WORDS.items()
        if variant in times and len(times[variant])
    )
    return StepTimePlot(_headline_title(results), of_steps, distributions) if distributions else None


def _sample_times(path: Path) -> dict[str, NDArray[np.float64]]:
    """Step times by variant, in s: of each step the slowest rank's. Empty where the file cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=["variant", "round", "step", "step_time_s"])
    except (OSError, KeyError, pa.ArrowException):
        return {}
    slowest = table.group_by(["variant", "round", "step"]).aggregate([("step_time_s", "max")])
    variants = np.array(slowest["variant"].to_pylist())
    times = slowest["step_time_s_max"].to_numpy()
    return {str(variant): times[variants == variant] for variant in np.unique(variants)}


@dataclass(frozen=True)
class TrainingPlot:
    """Test accuracy (0 to 1) and test loss over the epochs, a line for each number of devices."""

    accuracy: tuple[Line, ...]  # empty where the workload has no metric
    loss: tuple[Line, ...]
    seeds: tuple[int, int]
    target: float | None  # accuracy


@dataclass(frozen=True)
class EpochTimePlot:
    """Training time of an epoch in s over the world size, a line for each strategy, the base in each."""

    world_sizes: tuple[int, ...]
    lines: tuple[Line, ...]
    ideal: tuple[tuple[int, float], ...]
    epochs: tuple[int, int]  # fewest and most behind a point


def training_plot(results: StudyResults) -> TrainingPlot | None:
    """What the test samples say, epoch by epoch; None where nothing was trained."""
    found = results.training
    if found is None:
        return None
    groups = found.groups[:MOST_CURVES]
    loss = tuple(_by_epoch(group, "test_loss") for group in groups)
    accuracy = tuple(line for line in (_by_epoch(g, "test_accuracy") for g in groups) if line.points)
    target = groups[0].runs[0].spec.target_accuracy
    return TrainingPlot(accuracy, loss, _rounds(loss), target)


def _by_epoch(group: TrainedGroup, name: str) -> Line:
    size = group.world_size
    label = "1 device" if size == 1 else f"{size} devices, {group.strategy}"
    values = [
        (float(index + 1), over_seeds(getattr(run.epochs[index], name) for run in group.runs))
        for index in range(group.num_epochs)
    ]
    return _line(label, values)


def epoch_time_plot(results: StudyResults) -> EpochTimePlot | None:
    """Epoch times by world size; None where only one was trained at."""
    found = results.training
    if found is None or not found.comparisons:
        return None
    base = found.comparisons[0].base
    strategies = dict.fromkeys(group.strategy for group in found.groups if group.world_size > 1)
    lines = tuple(
        _line(
            strategy,
            [
                (group.world_size, group.epoch_time_s or group.over_seeds(lambda run: run.epoch_time_s))
                for group in found.groups
                if group is base or group.strategy == strategy
            ],
        )
        for strategy in strategies
    )
    sizes = tuple(sorted({group.world_size for group in found.groups}))
    start = base.mean(lambda run: run.epoch_time_s) or 0.0
    return EpochTimePlot(sizes, lines, tuple((size, start / size) for size in sizes), _rounds(lines))


def _headline_title(results: StudyResults) -> str:
    assert results.headline is not None
    size = results.headline.config.world_size
    return f"{size} device{'s' if size > 1 else ''}, {results.headline_label}"


def _line(label: str, points: Sequence[tuple[float, Estimate | None]]) -> Line:
    return Line(label, tuple(Point(x, estimate) for x, estimate in points if estimate is not None))


def _rounds(lines: Sequence[Line]) -> tuple[int, int]:
    numbers = [point.estimate.n for line in lines for point in line.points]
    return min(numbers, default=0), max(numbers, default=0)
