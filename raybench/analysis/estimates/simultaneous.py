"""Intervals that hold for many estimates at once: for whoever takes the best of them.

The best of several is one whose error helped it, so its own interval is too narrow. Each is as wide as
Student's t asks at the level 0.95 to the power of 1/among (Sidak, 1967, "Rectangular confidence regions for
the means of multivariate normal distributions", J. Amer. Statist. Assoc. 62: that is enough, whatever the
estimates have in common). ``among`` is the number of those that are compared.
"""

from __future__ import annotations

import math

from raybench.analysis.estimates.over_starts import ratio_of_starts
from raybench.analysis.estimates.statistics import (
    CONFIDENCE,
    Estimate,
    exponential,
    num_trimmed,
    of_log,
    t_quantile,
    unpaired_ratio,
)


def simultaneous(estimate: Estimate, among: int) -> Estimate:
    """A positive estimate over rounds or starts as one of so many."""
    degrees = degrees_of(estimate)
    if among <= 1 or degrees < 1 or estimate.low <= 0:
        return estimate
    wider = widening(degrees, among)
    logs = (wider * math.log(end / estimate.value) for end in (estimate.low, estimate.high))
    low, high = (estimate.value * exponential(log) for log in logs)
    return Estimate(estimate.value, low, high, estimate.n, estimate.starts)


def simultaneous_difference(estimate: Estimate, among: int) -> Estimate:
    """An estimate that may be 0 or negative, such as a part of a step, as one of so many."""
    degrees = degrees_of(estimate)
    if among <= 1 or degrees < 1 or estimate.half_width == 0 or not math.isfinite(estimate.half_width):
        return estimate
    half = estimate.half_width * widening(degrees, among)
    return Estimate(estimate.value, estimate.value - half, estimate.value + half, estimate.n, estimate.starts)


def simultaneous_ratio(
    numerator: Estimate, denominator: Estimate, among: int, between_starts: float = 0.0
) -> Estimate:
    """``unpaired_ratio`` as one of so many, with the degrees of freedom of Welch.

    Welch (1947), "The generalization of 'Student's' problem when several different population variances are
    involved", Biometrika 34. ``between_starts``: the standard deviation of a start's logarithm, where the two
    are of different starts; taken unless both were measured in several.
    """
    if between_starts and min(numerator.starts, denominator.starts) < 2:
        return simultaneous(ratio_of_starts([numerator], [denominator], between_starts), among)
    ratio, sides = unpaired_ratio(numerator, denominator), (numerator, denominator)
    degrees = [degrees_of(each) for each in sides]
    if among <= 1 or ratio.half_width == 0 or min(degrees) < 1:
        return ratio
    halves = [each.log_half_width for each in sides]
    squares = [(half / t_quantile(own)) ** 2 for half, own in zip(halves, degrees, strict=True)]
    welch = sum(squares) ** 2 / sum(each**2 / own for each, own in zip(squares, degrees, strict=True))
    half_width = ratio.log_half_width * widening(welch, among)
    return of_log(math.log(ratio.value), half_width, ratio.n, ratio.starts)


def degrees_of(estimate: Estimate) -> int:
    """The degrees of freedom: of the starts where there are several, else of the rounds' trimmed mean."""
    if estimate.starts > 1:
        return estimate.starts - 1
    return estimate.n - 2 * num_trimmed(estimate.n) - 1


def widening(degrees: float, among: int) -> float:
    """By what an interval is wider for being one of so many."""
    return t_quantile(degrees, CONFIDENCE ** (1 / among)) / t_quantile(degrees)
