"""Throughput and efficiency over the world size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raybench.analysis.curves import Curve
from raybench.analysis.results import StudyResults
from raybench.report.plots.axes import log2_axis, log_y, percent_axis, shown_ends
from raybench.report.plots.drawing import (
    GREY,
    draw_lines,
    legend_below,
    legend_height,
    make_figure,
    n_words,
    write_title,
)
from raybench.report.plots.lines import MOST_CURVES, Line, fewest_and_most, make_line
from raybench.spec.counted import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ScalingPlot:
    """Throughput in samples/s and efficiency over the world size."""

    world_sizes: tuple[int, ...]
    throughput: tuple[Line, ...]
    efficiency: tuple[Line, ...]
    ideal: tuple[tuple[int, float], ...]  # of the first curve, from its smallest world size, in samples/s
    num_left_out: int  # curves beyond those that a plot can hold
    rounds: tuple[int, int]  # fewest and most behind a point


def scaling_plot(results: StudyResults) -> ScalingPlot | None:
    """The scaling curves, the default's and the fastest ones first; None where all have one world size."""
    drawable = [curve for curve in results.curves if len({point.world_size for point in curve.points}) > 1]
    if not drawable:
        return None

    def speed(curve: Curve) -> tuple[bool, int, float]:
        last = curve.points[-1]
        return curve.is_default, last.world_size, last.throughput_samples_per_s.value

    shown = sorted(drawable, key=speed, reverse=True)[:MOST_CURVES]
    throughput = tuple(
        make_line(c.label, [(p.world_size, p.throughput_samples_per_s) for p in c.points]) for c in shown
    )
    efficiency = tuple(make_line(c.label, [(p.world_size, p.efficiency) for p in c.points]) for c in shown)
    sizes = tuple(sorted({point.world_size for curve in shown for point in curve.points}))
    start = shown[0].points[0]
    per_device = start.throughput_samples_per_s.value / start.world_size
    return ScalingPlot(
        world_sizes=sizes,
        throughput=throughput,
        efficiency=tuple(line for line in efficiency if len(line.points) > 1),
        ideal=tuple((size, per_device * size) for size in sizes),
        num_left_out=len(results.curves) - len(shown),
        rounds=fewest_and_most(throughput),
    )


def draw_scaling(plot: ScalingPlot) -> Figure:
    """Throughput and efficiency over the world size, side by side, with the ideal lines.

    The throughput alone where no efficiency is known of two world sizes.
    """
    columns = 2 if plot.efficiency else 1
    width = 4.5 * columns if columns > 1 else 6.4
    figure, panels = make_figure(width, 3.7 + legend_height(width, plot.throughput), columns=columns)
    left = panels[0]
    ideal_x, ideal_y = zip(*plot.ideal, strict=True)
    left.plot(ideal_x, ideal_y, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2, label="ideal")
    draw_lines(left, plot.throughput, log_x=True)
    log2_axis(left, plot.world_sizes)
    ends = shown_ends(point.estimate for line in plot.throughput for point in line.points)
    log_y(left, [*ends, *ideal_y])
    left.set_xlabel("world size (devices)")
    left.set_ylabel("throughput (samples/s)")
    for right in panels[1:]:
        right.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
        draw_lines(right, plot.efficiency, scale=100, log_x=True, styles_of=plot.throughput)
        log2_axis(right, plot.world_sizes)
        percent_axis(right, plot.efficiency)
        right.set_xlabel("world size (devices)")
        right.set_ylabel("scaling efficiency (%)")
    note = f" · {counted(plot.num_left_out, 'setting')} more in the tables" if plot.num_left_out else ""
    write_title(figure, f"Scaling: mean and 95% interval of each, {n_words(plot.rounds)}{note}")
    legend_below(figure, left)
    return figure
