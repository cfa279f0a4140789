"""Efficiency against the batch, and every batch over the devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raybench.analysis.batch_lines import amdahl_speedup
from raybench.analysis.results import StudyResults
from raybench.report.format import rounded_batch
from raybench.report.plots.axes import log2_axis, log_y, percent_axis, shown_ends
from raybench.report.plots.drawing import (
    COLORS,
    GREY,
    draw_lines,
    legend_below,
    legend_height,
    make_figure,
    n_words,
    write_title,
)
from raybench.report.plots.lines import MOST_CURVES, Line, fewest_and_most, make_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class BatchPlot:
    """Efficiency over the batch at one world size."""

    world_size: int
    strong: bool
    lines: tuple[Line, ...]
    crossover: float | None  # of the first line, interpolated; None: it passes 1 never, or more than once
    brackets: int  # times that the first line passes 1
    rounds: tuple[int, int]
    at_once: int = 1  # settings, the most at a batch, that the intervals of the best hold for

    @property
    def break_even(self) -> float:
        """The efficiency at which more devices are as fast as one."""
        return 1 / self.world_size


def batch_plot(results: StudyResults) -> BatchPlot | None:
    """Efficiency against batch at the headline's world size; None where only one batch was measured."""
    curves = results.batch_curves[:MOST_CURVES]
    if not curves:
        return None
    lines = tuple(make_line(c.label, [(p.batch_size, p.efficiency) for p in c.points]) for c in curves)
    passage = curves[0].crossover
    strong = results.study.scaling.mode == "strong"
    brackets = len(passage.brackets) if passage else 0
    batch = passage.batch if passage and brackets == 1 and not passage.is_wide else None
    at_once = max(curve.at_once for curve in curves)
    return BatchPlot(curves[0].world_size, strong, lines, batch, brackets, fewest_and_most(lines), at_once)


def draw_batches(plot: BatchPlot) -> Figure:
    """Efficiency against the batch, with the line below which more devices are slower than one."""
    figure, (axes,) = make_figure(6.4, 3.9 + legend_height(6.4, plot.lines))
    batches = sorted({int(point.x) for line in plot.lines for point in line.points})
    axes.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    axes.axhspan(0, 100 * plot.break_even, facecolor="#eeeeee", edgecolor="#bbbbbb", hatch="//", linewidth=0)
    axes.axhline(100 * plot.break_even, color=GREY, linewidth=0.9)
    draw_lines(axes, plot.lines, scale=100, log_x=True, as_powers=True)
    if plot.crossover is not None:
        axes.axvline(plot.crossover, color=GREY, linestyle=":", linewidth=1.1)
    log2_axis(axes, batches)
    percent_axis(axes, plot.lines)
    axes.set_xlabel("global batch (samples)" if plot.strong else "batch per device (samples)")
    axes.set_ylabel(f"scaling efficiency on {plot.world_size} devices (%)")
    where = "" if plot.crossover is None else f" (about batch {rounded_batch(plot.crossover)}, interpolated)"
    where = f" (passed {plot.brackets} times)" if plot.brackets > 1 else where
    of = f" for up to {plot.at_once} a batch at once" if plot.at_once > 1 else " of each"
    words = f"Efficiency against batch: mean and 95% interval{of}, {n_words(plot.rounds)}"
    write_title(figure, f"{words}\nshaded: slower than one device{where}")
    if len(plot.lines) > 1:
        legend_below(figure, axes)
    return figure


@dataclass(frozen=True)
class BatchScalingPlot:
    """Throughput in samples/s and speed-up over the devices, a line for each batch."""

    world_sizes: tuple[int, ...]
    strong: bool
    throughput: tuple[Line, ...]
    speedup: tuple[Line, ...]
    ideal: tuple[float, ...]  # of each line, samples/s for each device
    # of each line at its largest world size: Amdahl's f; None where no share of a step gives the speed-up
    serial_fraction: tuple[float | None, ...]
    num_left_out: int
    rounds: tuple[int, int]


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
            make_line(label, [(point.world_size, getattr(point, name)) for point in line.points])
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
        serial_fraction=tuple(each.value if each is not None and each.value <= 1 else None for each in last),
        num_left_out=len(every) - len(shown),
        rounds=fewest_and_most(throughput),
    )


def draw_batch_scaling(plot: BatchScalingPlot) -> Figure:
    """Throughput and speed-up over the devices for each batch, with ideal lines and Amdahl's curves."""
    figure, (left, right) = make_figure(9.0, 3.9 + legend_height(9.0, plot.throughput), columns=2)
    sizes = np.array(plot.world_sizes)
    dense = np.geomspace(sizes[0], sizes[-1], 60)
    for index, per_device in enumerate(plot.ideal):
        color = COLORS[index % len(COLORS)]
        left.plot(sizes, sizes * per_device, color=color, linestyle=(0, (1, 2)), linewidth=1.1)
    for index, fraction in enumerate(plot.serial_fraction):
        if fraction is None:
            continue
        curve = [amdahl_speedup(fraction, size) for size in dense]
        right.plot(dense, curve, color=COLORS[index % len(COLORS)], linewidth=3.5, alpha=0.25)
    right.plot(dense, dense, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    right.axhline(1, color=GREY, linewidth=0.9)
    draw_lines(left, plot.throughput, log_x=True)
    draw_lines(right, plot.speedup, log_x=True)
    ends = shown_ends(point.estimate for line in plot.throughput for point in line.points)
    log_y(left, [*ends, *(per_device * sizes[-1] for per_device in plot.ideal)])
    highest = max(sizes[-1], *shown_ends(point.estimate for line in plot.speedup for point in line.points))
    right.set_ylim(0, highest * 1.05)
    for axes, label in ((left, "throughput (samples/s)"), (right, "speed-up over one device")):
        log2_axis(axes, plot.world_sizes)
        axes.set_xlabel("world size (devices)")
        axes.set_ylabel(label)
    note = f" · {plot.num_left_out} batches more in the tables" if plot.num_left_out else ""
    kind = "global batch" if plot.strong else "batch per device"
    words = f"Each {kind}: mean and 95% interval of each, {n_words(plot.rounds)}{note}"
    slower = " (none below 1)" if None in plot.serial_fraction else ""
    write_title(figure, f"{words}\ndotted: ideal; broad: Amdahl's law through the largest world size{slower}")
    legend_below(figure, left)
    return figure
