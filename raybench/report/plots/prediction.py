"""What more devices would bring: throughput and efficiency with their bands, the measured points on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.simulate.outlook import Expected, Forecast, Outlook
from raybench.report.plots.axes import log2_axis, log_y, percent_axis, shown_ends
from raybench.report.plots.drawing import (
    COLORS,
    GREY,
    MARKERS,
    legend_below,
    legend_height,
    make_figure,
    write_title,
)
from raybench.report.plots.lines import Line, make_line
from raybench.spec.counted import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_BANDS = 4  # more lie on each other


@dataclass(frozen=True)
class PredictedLine:
    """One batch: what was measured, and what is predicted from the largest measured world size on."""

    measured: Line
    predicted: Line


@dataclass(frozen=True)
class PredictionPlot:
    """Throughput in samples/s and efficiency over the world size, a line for each batch."""

    model: str
    world_sizes: tuple[int, ...]
    throughput: tuple[PredictedLine, ...]
    efficiency: tuple[PredictedLine, ...]
    num_left_out: int  # batches beyond those that a plot can hold

    @property
    def largest_measured(self) -> int:
        """Where the band begins."""
        return int(max(point.x for line in self.throughput for point in line.measured.points))


def prediction_plot(outlook: Outlook | None) -> PredictionPlot | None:
    """The batches of a forecast, evenly chosen where there are many; None where nothing was predicted."""
    if outlook is None or not outlook.forecast.answered:
        return None
    forecast = outlook.forecast
    answered = sorted({each.batch_size for each in forecast.answered})
    places = np.unique(np.linspace(0, len(answered) - 1, min(len(answered), MOST_BANDS)).round().astype(int))
    shown = [answered[place] for place in places]
    sizes = {each.shape.world_size for each in forecast.everything if each.batch_size in shown}
    return PredictionPlot(
        model=forecast.group.model,
        world_sizes=tuple(sorted(sizes)),
        throughput=_lines(forecast, shown, lambda each: each.throughput_samples_per_s),
        efficiency=_lines(forecast, shown, lambda each: each.efficiency),
        num_left_out=len(answered) - len(shown),
    )


def draw_prediction(plot: PredictionPlot) -> Figure:
    """Throughput and efficiency side by side: points measured, bands predicted."""
    lines = [line.measured for line in plot.throughput]
    figure, (left, right) = make_figure(9.0, 3.9 + legend_height(9.0, lines), columns=2)
    for index, line in enumerate(plot.throughput):
        _draw(left, line, index, 1.0)
    for index, line in enumerate(plot.efficiency):
        _draw(right, line, index, 100.0)
    right.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    for axes in (left, right):
        log2_axis(axes, plot.world_sizes)
        axes.set_xlabel("world size (devices)")
    points = [
        point for line in plot.throughput for part in (line.measured, line.predicted) for point in part.points
    ]
    log_y(left, shown_ends(point.estimate for point in points))
    percent_axis(right, [part for line in plot.efficiency for part in (line.measured, line.predicted)])
    left.set_ylabel("throughput (samples/s)")
    right.set_ylabel("scaling efficiency (%)")
    note = (
        f" · {counted(plot.num_left_out, 'batch', 'batches')} more in the tables" if plot.num_left_out else ""
    )
    words = f"{plot.model}: measured to {plot.largest_measured} devices (points), predicted beyond"
    write_title(figure, f"{words}\n(dashed; band: 95% interval of a new measurement){note}")
    legend_below(figure, left)
    return figure


def _lines(
    forecast: Forecast, batches: Sequence[int], value: Callable[[Expected], Estimate | None]
) -> tuple[PredictedLine, ...]:
    """For each batch the fullest nodes at each world size; predicted from the last measured point on."""
    kind = "global batch" if forecast.scaling == "strong" else "batch"
    found = []
    for batch in batches:
        measured = _by_size((each for each in forecast.measured if each.batch_size == batch), value)
        predicted = _by_size((each for each in forecast.answered if each.batch_size == batch), value)
        last = measured[-1:] if measured and predicted and measured[-1][0] < predicted[0][0] else []
        label = f"{kind} {batch:,}"
        found.append(PredictedLine(make_line(label, measured), make_line(label, [*last, *predicted])))
    return tuple(found)


def _by_size(
    steps: Iterable[Expected], value: Callable[[Expected], Estimate | None]
) -> list[tuple[float, Estimate | None]]:
    fullest: dict[int, Expected] = {}
    for each in sorted(steps, key=lambda each: each.shape.nodes):
        fullest.setdefault(each.shape.world_size, each)
    return [(size, value(fullest[size])) for size in sorted(fullest)]


def _draw(axes: Axes, line: PredictedLine, index: int, scale: float) -> None:
    color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
    x, (y, low, high) = _arrays(line.measured, scale)
    axes.plot(x, y, color=color, marker=marker, markersize=5, linewidth=1.4, label=line.measured.label)
    axes.errorbar(x, y, yerr=np.vstack([y - low, high - y]), fmt="none", ecolor=color, capsize=3, zorder=1.5)
    x, (y, low, high) = _arrays(line.predicted, scale)
    if len(x):
        axes.plot(x, y, color=color, linestyle="--", linewidth=1.4)
        begin = 1 if line.measured.points and line.measured.points[-1].x == x[0] else 0
        axes.plot(
            x[begin:],
            y[begin:],
            color=color,
            linestyle="",
            marker=marker,
            markersize=5,
            markerfacecolor="white",
        )
        axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)


def _arrays(line: Line, scale: float) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    x = np.array([point.x for point in line.points])
    ends = ("value", "low", "high")
    return x, tuple(np.array([getattr(point.estimate, end) for point in line.points]) * scale for end in ends)
