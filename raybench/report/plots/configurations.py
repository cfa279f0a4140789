"""Configurations side by side, the best first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raybench.analysis.results import StudyResults
from raybench.analysis.stats.efficiency import GOOD
from raybench.analysis.stats.statistics import Estimate
from raybench.report.plots.axes import few_numbers, shown_ends
from raybench.report.plots.drawing import COLORS, GREY, draw_bar, in_lines, make_figure, n_words, write_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CONFIGURATIONS, WORST_CONFIGURATIONS = 14, 4


@dataclass(frozen=True)
class ConfigurationsPlot:
    """Speed-up, efficiency and throughput of each configuration on so many devices, the best first."""

    world_size: int
    labels: tuple[str, ...]
    speedup: tuple[Estimate, ...]
    efficiency: tuple[Estimate, ...]
    throughput: tuple[Estimate, ...]  # samples/s
    num_left_out: int
    at_once: int  # configurations that the intervals hold for
    rounds: tuple[int, int]


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
        at_once=len(results.configurations),
        rounds=(min(each.n for each in throughput), max(each.n for each in throughput)),
    )


def draw_configurations(plot: ConfigurationsPlot) -> Figure:
    """Speed-up, efficiency and throughput of each configuration, with the ideal and the good as lines."""
    rows = len(plot.labels)
    figure, axes = make_figure(9.6, 1.5 + 0.4 * rows, columns=3)
    panels = (
        (axes[0], plot.speedup, 1.0, "speed-up over one device", (1.0, float(plot.world_size))),
        (axes[1], plot.efficiency, 100.0, "scaling efficiency (%)", (100 * GOOD, 100.0)),
        (axes[2], plot.throughput, 1.0, "throughput (samples/s)", ()),
    )
    for index, (panel, estimates, scale, label, lines) in enumerate(panels):
        for row, estimate in enumerate(estimates):
            value = estimate.value * scale
            is_slower = plot.speedup[row].high < 1
            color, hatch = (COLORS[1], "///") if is_slower else (COLORS[0], "")
            draw_bar(panel, row, 0, value, color, hatch)
            error = np.array([[value - estimate.low * scale], [estimate.high * scale - value]])
            panel.errorbar(value, row, xerr=error, color="black", capsize=3, linewidth=1.1, fmt="none")
        for place, line in enumerate(lines):
            panel.axvline(line, color=GREY, linestyle="--" if place == 0 else (0, (1, 2)), linewidth=1.2)
        highest = max([*(end * scale for end in shown_ends(estimates)), *lines])
        panel.set_xlim(0, highest * 1.06)
        panel.set_xlabel(label)
        panel.set_yticks(
            range(rows), [in_lines(each, 34) for each in plot.labels] if index == 0 else [""] * rows
        )
        panel.set_ylim(rows - 0.4, -0.6)
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", length=0)
    few_numbers(axes[2])
    note = f" · {plot.num_left_out} configurations between them in diagnosis.md" if plot.num_left_out else ""
    at_once = f" for all {plot.at_once} at once" if plot.at_once > 1 else ""
    words = (
        f"Configurations on {plot.world_size} devices: mean, 95% interval{at_once}, "
        f"{n_words(plot.rounds)}{note}"
    )
    write_title(
        figure,
        f"{words}\ndashed: as fast as one device, good ({GOOD:.0%}); dotted: ideal; "
        "hatched: slower than one beyond the interval",
    )
    return figure
