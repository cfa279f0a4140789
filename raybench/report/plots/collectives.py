"""Messages of a sweep: times with the lines through them, bus bandwidths, every place beside others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raybench.analysis.collectives.results import SweepResults
from raybench.report.format import size_words
from raybench.report.plots.axes import enough, far_apart, log_y, shown_ends
from raybench.report.plots.drawing import (
    COLORS,
    draw_lines,
    legend_below,
    legend_height,
    make_figure,
    n_words,
    write_title,
)
from raybench.report.plots.lines import MOST_CURVES, Line, fewest_and_most, make_line
from raybench.report.tables.collectives import place_words, where_words
from raybench.spec.counted import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = 5  # sizes that have room under an axis
Curve = tuple[tuple[float, float], ...]  # points of a curve


@dataclass(frozen=True)
class MessagesPlot:
    """Times (s) and bus bandwidths (bytes/s) over the message (bytes), a line for each collective."""

    place: str
    times: tuple[Line, ...]
    fitted: tuple[Curve, ...]  # of each of ``times``; empty where nothing was fitted
    bandwidths: tuple[Line, ...]
    rounds: tuple[int, int]


@dataclass(frozen=True)
class PlacesPlot:
    """Bus bandwidths (bytes/s) of one collective over the message, a line for each place."""

    collective: str  # and its backend
    bandwidths: tuple[Line, ...]
    num_left_out: int
    rounds: tuple[int, int]


def messages_plot(results: SweepResults) -> MessagesPlot | None:
    """The headline's messages; None where nothing was measured."""
    place = results.headline
    if place is None:
        return None
    collectives = dict.fromkeys(each.collective for each in results.at(place))
    groups = [results.at(place, collective) for collective in collectives]
    times = tuple(
        make_line(group[0].collective, [(each.message_bytes, each.time_s) for each in group])
        for group in groups
    )
    bandwidths = tuple(
        make_line(
            group[0].collective, [(each.message_bytes, each.bus_bandwidth_bytes_per_s) for each in group]
        )
        for group in groups
    )
    fitted = list[Curve]()
    for group in groups:
        line = results.line(place, group[0].collective)
        sizes = np.geomspace(group[0].message_bytes, group[-1].message_bytes, 80).tolist()
        fitted.append(tuple((size, line.time_s(size)) for size in sizes) if line else ())
    return MessagesPlot(place_words(place), times, tuple(fitted), bandwidths, fewest_and_most(times))


def draw_messages(plot: MessagesPlot) -> Figure:
    """Times with their lines, and bus bandwidths."""
    figure, (left, right) = make_figure(9.0, 3.7 + legend_height(9.0, plot.times), columns=2)
    for index, path in enumerate(plot.fitted):
        if path:
            x, y = np.array(path).T
            left.plot(x, y * 1e6, color=COLORS[index % len(COLORS)], linewidth=3.5, alpha=0.25)
    draw_lines(left, plot.times, scale=1e6, log_x=True)
    draw_lines(right, plot.bandwidths, scale=1e-9, log_x=True)
    points = [point.estimate for line in plot.times for point in line.points]
    log_y(left, [end * 1e6 for end in (*shown_ends(points), *(y for path in plot.fitted for _, y in path))])
    _bandwidth_axis(right, plot.bandwidths)
    left.set_ylabel("time (µs)")
    for axes in (left, right):
        _size_axis(axes, plot.times)
    words = f"{plot.place}: mean and 95% interval, {n_words(plot.rounds)}"
    write_title(figure, f"{words}\nbroad: time = latency + message / bandwidth, fitted")
    legend_below(figure, left)
    return figure


def places_plot(results: SweepResults) -> PlacesPlot | None:
    """The first collective at every place; None where there is one place only."""
    if len(results.places) < 2:
        return None
    collective = results.messages[0].collective
    lines = [
        make_line(
            where_words(place),
            [(each.message_bytes, each.bus_bandwidth_bytes_per_s) for each in results.at(place, collective)],
        )
        for place in results.places
    ]
    shown = tuple(line for line in lines if line.points)[:MOST_CURVES]
    return PlacesPlot(
        f"{collective}, {results.places[0].backend}", shown, len(lines) - len(shown), fewest_and_most(shown)
    )


def draw_places(plot: PlacesPlot) -> Figure:
    """Bus bandwidths over the message at every place."""
    figure, (axes,) = make_figure(6.4, 3.7 + legend_height(6.4, plot.bandwidths))
    draw_lines(axes, plot.bandwidths, scale=1e-9, log_x=True)
    _bandwidth_axis(axes, plot.bandwidths)
    _size_axis(axes, plot.bandwidths)
    note = f" · {counted(plot.num_left_out, 'place')} more in the tables" if plot.num_left_out else ""
    write_title(figure, f"{plot.collective}: mean and 95% interval, {n_words(plot.rounds)}{note}")
    legend_below(figure, axes)
    return figure


def _size_axis(axes: Axes, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import NullLocator

    sizes = sorted({int(point.x) for line in lines for point in line.points})
    axes.set_xscale("log", base=2)
    shown = enough(far_apart(sizes, LABELS), sizes)
    axes.set_xticks(shown, [size_words(size) for size in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(sizes[0] / 2**0.6, sizes[-1] * 2**0.6)
    axes.set_xlabel("message")


def _bandwidth_axis(axes: Axes, lines: Sequence[Line]) -> None:
    highest = max(shown_ends(point.estimate for line in lines for point in line.points))
    axes.set_ylim(0, 1.06e-9 * highest)
    axes.set_ylabel("bus bandwidth (GB/s)")
