"""What several starts of one program say together: between two of them lies more than the rounds of one tell.

A start is a group of worker processes. How its memory lies and on which cores it runs stays as long as it
lives, so it moves all rounds alike. Hence starts are what is counted: each gives one value, and these are a
sample (Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time", ISMM; Georges, Buytaert and
Eeckhout 2007, "Statistically rigorous Java performance evaluation", OOPSLA).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from raybench.analysis.estimates.statistics import Estimate, of_log, student, t_quantile

# Standard deviation of the logarithm of a speed between starts, where nothing measured it: of 40 equal
# commands on two shared cores 7.3% [5.8, 9.6] on one device and 6.2% [4.7, 8.4] on two, by
# benchmarks/false_alarms.py.
BETWEEN_STARTS = 0.07


def over_starts(estimates: Sequence[Estimate]) -> Estimate:
    """The geometric mean of positive estimates, one from each start.

    The interval is Student's over the m starts, m - 1 degrees of freedom: t s / sqrt(m), s the standard
    deviation of their logarithms. It holds what rounds scatter and what starts differ by. Where starts agree
    better than their rounds let them, the interval of the rounds is taken: the root of the sum of squared
    half-widths over m.
    """
    if len(estimates) == 1:
        return estimates[0]
    logs = [math.log(each.value) for each in estimates]
    between = t_quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    half = max(between, _of_rounds(estimates))
    return of_log(fmean(logs), half, sum(each.n for each in estimates), len(logs))


def mean_over_starts(estimates: Sequence[Estimate]) -> Estimate:
    """The same for the arithmetic mean, where values may be 0 or negative."""
    if len(estimates) == 1:
        return estimates[0]
    between = student([each.value for each in estimates])
    rounds = math.hypot(*(each.half_width for each in estimates)) / len(estimates)
    half = max(between.half_width, rounds)
    n = sum(each.n for each in estimates)
    return Estimate(between.value, between.value - half, between.value + half, n, len(estimates))


def of_any_start(estimate: Estimate, between_starts: float) -> Estimate:
    """A positive estimate of one start as one of whichever start: the two errors add as squares.

    ``between_starts``: the standard deviation, relative; what several starts measured is left as it is.
    """
    if not between_starts or estimate.starts > 1:
        return estimate
    half = math.hypot(estimate.half_width, t_quantile(math.inf) * between_starts * estimate.value)
    return Estimate(estimate.value, estimate.value - half, estimate.value + half, estimate.n)


def ratio_of_starts(
    numerators: Sequence[Estimate], denominators: Sequence[Estimate], between_starts: float
) -> Estimate:
    """The ratio of two positive quantities, each measured in starts of its own, one estimate a start.

    With several starts on both sides Welch's interval of the difference of their mean logarithms: Welch
    (1947), Biometrika 34, with Satterthwaite's degrees of freedom; never narrower than that of the rounds.
    Else one standard deviation of a start's logarithm is taken for both sides, and added to the noise of the
    rounds as squares: ``between_starts``, or what the side of several starts measured where that is more,
    then with the t quantile of its degrees of freedom.
    """
    sides = (numerators, denominators)
    logs = [[math.log(each.value) for each in side] for side in sides]
    rounds = math.hypot(*(_of_rounds(side) for side in sides))
    starts = min(len(side) for side in sides)
    if starts > 1:
        half = max(_welch(*logs), rounds)
    else:
        deviation, degrees = _at_least(between_starts, logs)
        of_starts = deviation * math.sqrt(sum(1 / len(side) for side in sides))
        half = math.hypot(rounds, t_quantile(degrees) * of_starts)
    n = min(sum(each.n for each in side) for side in sides)
    return of_log(fmean(logs[0]) - fmean(logs[1]), half, n, starts)


def _of_rounds(estimates: Sequence[Estimate]) -> float:
    """Half the interval of the mean logarithm, were starts all alike."""
    return math.hypot(*(each.log_half_width for each in estimates)) / len(estimates)


def _at_least(between_starts: float, sides: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The standard deviation between starts, assumed or measured, and its degrees of freedom."""
    measured = [(stdev(side), len(side) - 1.0) for side in sides if len(side) > 1]
    return max([(between_starts, math.inf), *measured])


def _welch(one: Sequence[float], other: Sequence[float]) -> float:
    """Half of Welch's 95% interval of the difference of two means."""
    parts = [stdev(values) ** 2 / len(values) for values in (one, other)]
    if not any(parts):
        return 0.0
    spread = sum(part**2 / (len(values) - 1) for part, values in zip(parts, (one, other), strict=True))
    return t_quantile(sum(parts) ** 2 / spread) * math.sqrt(sum(parts))
