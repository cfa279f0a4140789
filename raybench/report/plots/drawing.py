"""What every plot is drawn with: looks, lines, bars, axes, titles and legends."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.stats.statistics import LEAST_VALUES
from raybench.report.plots.cut import mark_cut
from raybench.report.plots.lines import Line
from raybench.spec.counted import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130
CHARACTER_IN, LEGEND_HANDLE_IN = 0.076, 0.75  # sizes in a legend, in inches
# Okabe and Ito (2008), "Color universal design": told apart by the colour-blind, and by their greys.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
GREY = "#555555"
HAIR = 0.01  # of an axis, between the points of two curves at one abscissa
_POWER = r"$\mathdefault{"  # as matplotlib writes numbers on a logarithmic axis
_STYLE: Any = {  # the stubs want every key as a literal
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "raybench",  # the same values, the same file
}


def to_png(figure: Figure) -> bytes:
    """The figure as PNG."""
    return _saved(figure, "png", dpi=DPI, metadata={"Software": "raybench"})


def to_svg(figure: Figure) -> bytes:
    """The figure as SVG, letters as outlines, without a date."""
    return _saved(figure, "svg", metadata={"Date": None})


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    import matplotlib as mpl
    from matplotlib.text import Text

    mark_cut(figure)
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if "$" in text.get_text() and not text.get_text().startswith(_POWER):
            text.set_parse_math(False)  # a name with dollars in it is no formula
    file = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(file, format=kind, **options)
    return file.getvalue()


def make_figure(width_in: float, height_in: float, columns: int = 1) -> tuple[Figure, tuple[Axes, ...]]:
    """An empty figure of this size, and its axes side by side."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        axes = tuple(figure.add_subplot(1, columns, index + 1) for index in range(columns))
    return figure, axes


def draw_lines(
    axes: Axes,
    lines: Sequence[Line],
    scale: float = 1.0,
    *,
    log_x: bool = False,
    shift: float = 0.0,
    styles_of: Sequence[Line] = (),
    as_powers: bool = False,
) -> None:
    """Lines with error bars; ``styles_of`` keeps a line's looks where others are left out.

    ``as_powers``: between two points log y is straight over log x, as a crossover is interpolated.
    """
    labels = [line.label for line in styles_of or lines]
    every = [point.x for line in styles_of or lines for point in line.points]
    octaves = np.log2(max(every) / min(every)) + 1.0 if log_x and every else 0.0
    for line in lines:
        index = labels.index(line.label)
        x = np.array([point.x for point in line.points])
        # A hair apart, so that error bars at one abscissa do not hide each other.
        place = index - (len(labels) - 1) / 2
        x = x * 2 ** (place * HAIR * octaves) if log_x else x + place * shift
        y, low, high = (
            np.array([getattr(point.estimate, name) for point in line.points]) * scale
            for name in ("value", "low", "high")
        )
        color = COLORS[index % len(COLORS)]
        beneath = len(labels) - 1 - index  # curves that may lie on this one: it shows around them
        path_x, path_y, marked = _power_path(x, y) if as_powers else (x, y, 1)
        axes.plot(
            path_x,
            path_y,
            label=line.label,
            color=color,
            marker=MARKERS[index % len(MARKERS)],
            markevery=marked,
            linestyle=STYLES[index % len(STYLES)],
            markersize=5 + 0.6 * beneath,
            linewidth=1.4 + 0.25 * beneath,
            markerfacecolor="white" if index % 2 else color,
        )
        axes.errorbar(
            x,
            y,
            yerr=np.vstack([y - low, high - y]),
            fmt="none",
            ecolor=color,
            elinewidth=1.1,
            capsize=3,
            zorder=1.5,
        )


def _power_path(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[Any, Any, int]:
    """Points on the power laws between neighbours, and every how many of them is one of ``x``."""
    between = 20
    places, numbers = np.linspace(0, len(x) - 1, (len(x) - 1) * between + 1), np.arange(len(x))
    path_x, path_y = (np.exp(np.interp(places, numbers, np.log(values))) for values in (x, y))
    return path_x, path_y, between


def draw_bar(axes: Axes, row: int, start_ms: float, width_ms: float, color: str, hatch: str) -> None:
    """A part of a horizontal bar, hatched over its colour."""
    axes.barh(row, width_ms, left=start_ms, height=0.62, color=color, alpha=0.75)
    # The hatch in a bar of its own: alpha would fade it too.
    axes.barh(
        row, width_ms, left=start_ms, height=0.62, color="none", edgecolor="black", hatch=hatch, linewidth=0.7
    )


def draw_whisker(axes: Axes, row: int, low_s: float, value_s: float, high_s: float) -> None:
    """The interval of a time in s, on an axis in ms."""
    error = np.array([[value_s - low_s], [high_s - value_s]]) * 1e3
    axes.errorbar(value_s * 1e3, row, xerr=error, color="black", capsize=3, linewidth=1.1, fmt="none")


def write_note(axes: Axes, at_s: float, row: int, text: str) -> None:
    """Words to the right of a time in s, on an axis in ms."""
    axes.annotate(text, (at_s * 1e3, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)


def write_title(figure: Figure, text: str) -> None:
    """Over the whole figure: centred over the axes, a long one would run out of it."""
    figure.suptitle(text, fontsize=10.5)


def legend_below(figure: Figure, axes: Axes) -> None:
    """A legend under the axes, for which ``legend_height`` keeps room."""
    handles, labels = axes.get_legend_handles_labels()
    columns, characters = legend_shape(figure.get_figwidth(), labels)
    wrapped = [in_lines(label, characters) for label in labels]
    figure.legend(handles, wrapped, loc="outside lower center", ncols=columns, frameon=False)


def legend_shape(width_in: float, labels: Sequence[str]) -> tuple[int, int]:
    """Columns of a legend, and characters of a line in it: as many columns as leave the labels whole."""
    longest = max(map(len, labels), default=1)
    for columns in (3, 2):
        characters = int((width_in / columns - LEGEND_HANDLE_IN) / CHARACTER_IN)
        if longest <= characters:
            break
    return min(columns, 2 if len(labels) in (2, 4) else 3, max(len(labels), 1)), characters


def legend_height(width_in: float, lines: Sequence[Line]) -> float:
    """Room for the legend below, in inches."""
    labels = [line.label for line in lines]
    columns, characters = legend_shape(width_in, labels)
    rows = -(-(len(lines) + 1) // columns)
    longest = max((in_lines(label, characters).count("\n") + 1 for label in labels), default=1)
    return 0.17 * rows * longest + 0.1


def in_lines(text: str, width: int) -> str:
    """The text in lines of so many characters."""
    return "\n".join(textwrap.wrap(text, width, break_long_words=True)) or text


def n_words(rounds: tuple[int, int], unit: str = "round", interval: str = "") -> str:
    """The number behind each point; of one or two seeds there is no interval to speak of."""
    few, many = rounds
    if many < LEAST_VALUES and interval:
        return f"n = {counted(many, unit)}, no interval"
    return f"{interval}n = {counted(many, unit)}" if few == many else f"{interval}n = {few} to {many} {unit}s"
