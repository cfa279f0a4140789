"""The defaults of several studies over the world sizes, in one plot; efficiency against batch in another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raybench.analysis.comparison import Side
from raybench.report.plots.batches import BatchPlot, batch_plot
from raybench.report.plots.lines import MOST_CURVES, Line, fewest_and_most
from raybench.report.plots.scaling import ScalingPlot, scaling_plot


def defaults_plot(sides: Sequence[Side]) -> ScalingPlot | None:
    """The first curve of each side, its default's; None where no side has two world sizes."""
    plots = [(side.name, plot) for side in sides if (plot := scaling_plot(side.results)) is not None]
    if not plots:
        return None
    shown = plots[:MOST_CURVES]
    throughput = tuple(_named(name, plot.throughput) for name, plot in shown)
    return ScalingPlot(
        world_sizes=tuple(sorted({size for _, plot in shown for size in plot.world_sizes})),
        throughput=throughput,
        efficiency=tuple(_named(name, plot.efficiency) for name, plot in shown if plot.efficiency),
        ideal=shown[0][1].ideal,
        num_left_out=len(plots) - len(shown),
        rounds=fewest_and_most(throughput),
    )


def batches_plot(sides: Sequence[Side]) -> BatchPlot | None:
    """Efficiency against batch of every side at the first one's world size; None without two batches."""
    plots = [(side.name, plot) for side in sides if (plot := batch_plot(side.results)) is not None]
    shown = [(name, plot) for name, plot in plots if plot.world_size == plots[0][1].world_size][:MOST_CURVES]
    if not shown:
        return None
    lines = tuple(_named(name, plot.lines) for name, plot in shown)
    return replace(shown[0][1], lines=lines, rounds=fewest_and_most(lines))


def _named(name: str, lines: Sequence[Line]) -> Line:
    return replace(lines[0], label=f"{name}: {lines[0].label}")
