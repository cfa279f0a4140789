"""Intervals that stay where a quantity lives: a share between 0 and 1, a time above 0.

Student's interval of a few values knows no bounds: an accuracy of 61% from two seeds had [-49, 172]. Two
values have one degree of freedom and a quantile of 12.7, so fewer than ``LEAST_VALUES`` have no interval;
of more the interval is made on a scale on which the bounds are at infinity, logarithm or logit, by the
half-width there to first order (the delta method), and is carried back.
"""

from __future__ import annotations

import math
from dataclasses import replace

from raybench.analysis.estimates.statistics import Estimate, exponential

LEAST_VALUES = 3  # seeds, restarts, runs: fewer have a value and no interval
Bounds = tuple[float, float]
SHARE: Bounds = (0.0, 1.0)
POSITIVE: Bounds = (0.0, math.inf)
ANYWHERE: Bounds = (-math.inf, math.inf)


def without_interval(estimate: Estimate) -> Estimate:
    """The value alone."""
    return replace(estimate, low=estimate.value, high=estimate.value)


def within(estimate: Estimate, bounds: Bounds) -> Estimate:
    """The estimate with its interval made on a scale on which ``bounds`` are at infinity.

    For a mean of values that lie within. One that lies on a bound has the part of its interval that is
    within; one beyond stays as it is.
    """
    low, high = bounds
    if not low <= estimate.value <= high:
        return estimate
    above, below, half = estimate.value - low, high - estimate.value, estimate.half_width
    if above == 0 or below == 0 or math.isinf(above):
        return replace(estimate, low=max(estimate.low, low), high=min(estimate.high, high))
    if math.isinf(high):
        factor = exponential(half / above)
        return replace(estimate, low=low + above / factor, high=low + above * factor)
    factor, odds, width = exponential(half * (high - low) / (above * below)), above / below, high - low
    return replace(
        estimate, low=low + width * odds / (odds + factor), high=high - width / (1 + odds * factor)
    )
