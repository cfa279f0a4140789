"""Axes of plots: their numbers, and how far they reach."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from raybench.analysis.stats.statistics import Estimate
from raybench.report.plots.lines import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

FEW_DECADES = 1000.0  # an axis that spans less has numbers within its decades
LEAST_TICKS, MOST_TICKS = 3, 9  # numbers on a logarithmic axis
REACH = 3.0  # beyond the values, of an axis for their intervals


def log2_axis(axes: Axes, values: Sequence[int]) -> None:
    """A logarithmic abscissa with plain numbers at what was measured."""
    from matplotlib.ticker import NullFormatter, NullLocator

    axes.set_xscale("log", base=2)
    shown = enough(far_apart(values), values)
    axes.set_xticks(shown, [f"{value:,}" for value in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(values) / 2**0.3, max(values) * 2**0.3)


def enough(shown: Sequence[int], values: Sequence[int], least: int = LEAST_TICKS) -> list[int]:
    """``shown`` of the measured ``values``, and where they are fewer round numbers furthest from them.

    Between 1 and 2 there are none.
    """
    low, high = min(values), max(values)
    halves = (number << octave for octave in range(high.bit_length()) for number in (2, 3))
    round_numbers = {number for number in halves if low < number < high}
    found = set(shown)
    while len(found) < least and (left := round_numbers - found):
        found.add(max(left, key=lambda one: (min(abs(np.log2(one / each)) for each in found), -one)))
    return sorted(found)


def far_apart(values: Sequence[int], most: int = 10) -> list[int]:
    """The values whose labels have room beside each other, ``most`` on an axis, the largest among them."""
    least = np.log2(max(values) / min(values)) / most
    shown: list[int] = []
    for value in sorted(values, reverse=True):
        if not shown or np.log2(shown[-1] / value) >= least:
            shown.append(value)
    return shown[::-1]


def log_ticks(low: float, high: float) -> list[float]:
    """Numbers on a logarithmic axis between the two: decades, else 1, 2 and 5 of each, else even steps."""
    from matplotlib.ticker import MaxNLocator

    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    decades = [10.0**each for each in exponents]
    candidates = [
        decades[:: -(-len(decades) // MOST_TICKS)],
        [n * each for each in decades for n in (1, 2, 5)],
    ]
    ticks: list[float] = []
    for every in candidates[int(high / low < FEW_DECADES) :]:
        ticks = [each for each in every if low <= each <= high]
        if len(ticks) >= LEAST_TICKS:
            return ticks
    for number in range(4, MOST_TICKS):
        even = MaxNLocator(number, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        ticks = [float(each) for each in even if low <= each <= high]
        if len(ticks) > LEAST_TICKS:
            break
    return ticks


def log_y(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic ordinate with plain numbers, enough of them however short it is."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_yscale("log")
    low, high = min(values) / 1.15, max(values) * 1.15
    axes.yaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axes.yaxis.set_minor_locator(NullLocator())
    with_separators(axes.yaxis)
    axes.set_ylim(low, high)


def few_numbers(axes: Axes) -> None:
    """Large numbers with separators, so few that they do not meet."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(3))
    with_separators(axes.xaxis)


def with_separators(axis: Axis) -> None:
    """Numbers as tables have them: 12,000."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def percent_axis(axes: Axes, lines: Sequence[Line]) -> None:
    """An ordinate from 0 that has room for the lines, given as shares."""
    from matplotlib.ticker import MaxNLocator

    highest = max(shown_ends(point.estimate for line in lines for point in line.points), default=1.0)
    axes.set_ylim(0, 100 * max(1.08, highest * 1.04))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


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
