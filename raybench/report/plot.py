"""Axes, colours, lines and files of every plot."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from raybench.analysis.stats.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REACH = 3.0  # beyond the values, of an axis for their intervals
DPI = 130
CHARACTERS_AN_INCH = 11
HAIR_IN = 0.03  # between the points of two curves at one abscissa, whose error bars would hide each other
MARKERS = ("o", "s", "^", "D", "v", "P")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
GREY = "#555555"
_POWER = r"$\mathdefault{"  # as matplotlib writes numbers on a logarithmic axis
SEPARATED = "{x:,.10g}"  # numbers of an axis as tables have them: 12,000
MOST_CURVES = 6  # more cannot be told apart


def log2_axis(
    axes: Axes, values: Sequence[int], words: Callable[[int], str] = "{:,}".format, most: int = 10
) -> None:
    """A logarithmic abscissa with plain numbers, or ``words``, at what was measured, ``most`` of them."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log", base=2)
    step = 1 + (len(values) - 1) // most
    shown = sorted(values[::-step])  # the largest is one of them
    axes.set_xticks(shown, [words(value) for value in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = min(values), max(values)
    margin = max(2**0.3, (high / low) ** 0.04)
    axes.set_xlim(low / margin, high * margin)


def shown_ends(estimates: Iterable[Estimate]) -> list[float]:
    """The ends of the intervals as far as an axis shows them.

    An interval may be wider than every value by orders of magnitude, where a few rounds were very noisy: it
    leaves the picture, or nothing else could be seen in it.
    """
    known = list(estimates)
    values = [each.value for each in known]
    least, most = (min(values) / REACH, max(values) * REACH) if values else (0.0, 0.0)
    return [min(max(end, least), most) for each in known for end in (each.low, each.high)]


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


# neither a date nor a version of matplotlib: the same values, the same file
_METADATA = {"png": {"Software": "raybench"}, "svg": {"Date": None}}


def saved(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """The figure as a file of this kind; in SVG letters are outlines."""
    import matplotlib as mpl
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if "$" in text.get_text() and not text.get_text().startswith(_POWER):
            text.set_parse_math(False)  # a name with dollars in it is no formula
    file = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(file, format=kind, dpi=DPI, metadata=_METADATA[kind])
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


def draw_lines(axes: Axes, lines: Sequence[Line], scale: float = 1.0) -> list[float]:
    """Lines with error bars; the ends of these as far as an axis shows them."""
    from matplotlib.transforms import ScaledTranslation

    for index, line in enumerate(lines):
        estimates = line.points.values()
        ends = [(each.value, each.low, each.high) for each in estimates]
        y, low, high = np.array(ends).reshape(-1, 3).T * scale  # of a line without a point too
        color = COLORS[index % len(COLORS)]
        drawn_line = axes.errorbar(
            list(line.points),
            y,
            yerr=np.vstack([y - low, high - y]),
            label=line.label,
            color=color,
            marker=MARKERS[index % len(MARKERS)],
            linestyle=STYLES[index % len(STYLES)],
            linewidth=1.5,
            markersize=5,
            markerfacecolor="white" if index % 2 else color,
            elinewidth=1.1,
            capsize=3,
        )
        aside_in = (index - (len(lines) - 1) / 2) * HAIR_IN
        for part in drawn_line.get_children():
            part.set_transform(axes.transData + ScaledTranslation(aside_in, 0, axes.figure.dpi_scale_trans))
    return [end * scale for end in shown_ends(each for line in lines for each in line.points.values())]


def write_title(figure: Figure, text: str, more: str = "") -> None:
    """Over the whole figure, in lines as wide as it, then ``more`` in a line of its own."""
    lines = in_lines(text, int(CHARACTERS_AN_INCH * figure.get_figwidth()))
    figure.suptitle(f"{lines}\n{more}".strip(), fontsize=10.5)


def legend_below(figure: Figure, axes: Axes) -> None:
    """A legend under the axes, by which the figure gets taller."""
    handles, labels = axes.get_legend_handles_labels()
    fit = int(CHARACTERS_AN_INCH * figure.get_figwidth())
    columns = 2 if max(map(len, labels), default=0) < fit / 2 - 5 else 1  # 5: for its line
    wrapped = [in_lines(label, fit) for label in labels]
    legend = figure.legend(handles, wrapped, loc="outside lower center", ncols=columns, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.set_figheight(figure.get_figheight() + legend.get_window_extent().height / figure.dpi)


def in_lines(text: str, width: int) -> str:
    """The text in lines of so many characters."""
    return "\n".join(textwrap.wrap(text, width, break_long_words=True)) or text


def label_lines(label: str, width: int) -> str:
    """A setting's label in lines that end between its knobs: "accumulation 1" stays whole."""
    return in_lines(label.replace(" ", "\u00a0").replace(",\u00a0", ", "), width)


@dataclass(frozen=True)
class Line:
    """One labelled series: values with their intervals, by their abscissas."""

    label: str
    points: Mapping[float, Estimate]


def make_line(label: str, points: Iterable[tuple[float, Estimate | None]]) -> Line:
    """The points whose values are known."""
    return Line(label, {x: estimate for x, estimate in points if estimate is not None})


@dataclass(frozen=True)
class DrawnPlot:
    """One plot, drawn."""

    name: str
    title: str
    png: bytes
    svg: bytes


def drawn(name: str, title: str, figure: Figure | None) -> tuple[DrawnPlot, ...]:
    """The plot of a figure; none where the records do not allow it."""
    return () if figure is None else (DrawnPlot(name, title, saved(figure, "png"), saved(figure, "svg")),)
