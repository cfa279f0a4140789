"""Axes, colours, lines and files of every plot."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from raybench.analysis.stats.statistics import LEAST_VALUES, Estimate
from raybench.report.format import number_words
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FEW_DECADES = 1000.0  # an axis that spans less has numbers within its decades
MOST_TICKS = 9  # decades on a logarithmic axis
REACH = 3.0  # beyond the values, of an axis for their intervals
DPI = 130
CHARACTER_IN, LEGEND_HANDLE_IN = 0.076, 0.75  # sizes in a legend, in inches
MARKERS = ("o", "s", "^", "D", "v", "P")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
GREY = "#555555"
HAIR = 0.01  # of an axis, between the points of two curves at one abscissa
_POWER = r"$\mathdefault{"  # as matplotlib writes numbers on a logarithmic axis
MOST_CURVES = 6  # more cannot be told apart


def log2_axis(
    axes: Axes, values: Sequence[int], words: Callable[[int], str] = "{:,}".format, most: int = 10
) -> None:
    """A logarithmic abscissa with plain numbers, or ``words``, at what was measured, ``most`` of them."""
    from matplotlib.ticker import NullFormatter, NullLocator

    axes.set_xscale("log", base=2)
    shown = far_apart(values, most)
    axes.set_xticks(shown, [words(value) for value in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = min(values), max(values)
    margin = max(2**0.3, (high / low) ** 0.04)
    axes.set_xlim(low / margin, high * margin)


def far_apart(values: Sequence[int], most: int = 10) -> list[int]:
    """The values whose labels have room beside each other, ``most`` on an axis, the largest among them."""
    least = np.log2(max(values) / min(values)) / most
    shown: list[int] = []
    for value in sorted(values, reverse=True):
        if not shown or np.log2(shown[-1] / value) >= least:
            shown.append(value)
    return shown[::-1]


def log_ticks(low: float, high: float) -> list[float]:
    """Numbers on a logarithmic axis between the two: decades, 1, 2 and 5 of each, or even steps in one."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    if high / low < 10:
        locator: MaxNLocator | LogLocator = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], min_n_ticks=4)
    else:
        locator = LogLocator(subs=(1, 2, 5) if high / low < FEW_DECADES else (1,), numticks=MOST_TICKS)
    return [float(each) for each in locator.tick_values(low, high) if low <= each <= high]


def log_y(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic ordinate with plain numbers, enough of them however short it is."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_yscale("log")
    low, high = min(values) / 1.15, max(values) * 1.15
    axes.yaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axes.yaxis.set_minor_locator(NullLocator())
    with_separators(axes.yaxis)
    axes.set_ylim(low, high)


def with_separators(axis: Axis) -> None:
    """Numbers as tables have them: 12,000."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def shown_ends(estimates: Iterable[Estimate]) -> list[float]:
    """The ends of the intervals as far as an axis shows them.

    An interval may be wider than every value by orders of magnitude, where a few rounds were very noisy: it
    leaves the picture, or nothing else could be seen in it.
    """
    known = list(estimates)
    values = [each.value for each in known]
    least, most = (min(values) / REACH, max(values) * REACH) if values else (0.0, 0.0)
    return [min(max(end, least), most) for each in known for end in (each.low, each.high)]


def whole_numbers(axes: Axes) -> None:
    """An abscissa of whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


# Okabe and Ito (2008), "Color universal design": told apart by the colour-blind, and by their greys.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
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
) -> None:
    """Lines with error bars."""
    labels = [line.label for line in lines]
    every = [point.x for line in lines for point in line.points]
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
        axes.plot(
            x,
            y,
            label=line.label,
            color=color,
            marker=MARKERS[index % len(MARKERS)],
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


def label_lines(label: str, width: int) -> str:
    """A setting's label in lines that end between its knobs: "accumulation 1" stays whole."""
    return in_lines(label.replace(" ", "\u00a0").replace(",\u00a0", ", "), width)


def n_words(rounds: tuple[int, int], unit: str = "round", interval: str = "") -> str:
    """The number behind each point; of one or two seeds there is no interval to speak of."""
    if rounds[1] < LEAST_VALUES and interval:
        return f"n = {plural(rounds[1], unit)}, no interval"
    return f"{interval}n = {number_words(rounds, unit)}"


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


def make_line(label: str, points: Sequence[tuple[float, Estimate | None]]) -> Line:
    """The points whose values are known."""
    return Line(label, tuple(Point(x, estimate) for x, estimate in points if estimate is not None))


def fewest_and_most(lines: Sequence[Line]) -> tuple[int, int]:
    """How many rounds, seeds or epochs are behind a point."""
    numbers = [point.estimate.n for line in lines for point in line.points]
    return min(numbers, default=0), max(numbers, default=0)


Value = TypeVar("Value")  # what a plot shows


@dataclass(frozen=True)
class DrawnPlot:
    """One plot, drawn."""

    name: str
    title: str
    png: bytes
    svg: bytes

    @property
    def svg_base64(self) -> str:
        """For a data URI: an image of its own, so that ids of two plots do not meet."""
        return base64.b64encode(self.svg).decode()


def drawn(
    name: str, title: str, value: Value | None, draw: Callable[[Value], Figure]
) -> tuple[DrawnPlot, ...]:
    """The plot of ``value``; none where the records do not allow it."""
    if value is None:
        return ()
    figure = draw(value)
    return (DrawnPlot(name, title, to_png(figure), to_svg(figure)),)
