"""The estimator of one series of rounds: the 10% trimmed mean with its Student-t interval.

From four values on at least one at each end is trimmed. A level of the pool, whose noise is known from the
whole study, is trimmed from ten rounds on only.

Tukey and McLaughlin (1963), "Less vulnerable confidence and significance procedures for location based on
a single sample", Sankhya A 25: the standard error of a trimmed mean is the Winsorized standard deviation
over (1 - 2 g/n) sqrt(n), with n - 2g - 1 degrees of freedom, g values trimmed at each end.

Imported by the worker's stopping rule too, so: numpy and scipy only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

TRIM = 0.10  # of the rounds, at each end
CONFIDENCE = 0.95
LARGEST_LOG = 700.0
MANY = 10**6  # degrees of freedom: as good as normal


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval, the number of rounds behind it, and of starts and visits they are from.

    ``again``: the interval of the same figure in another run, where that is known.
    """

    value: float
    low: float
    high: float
    n: int
    starts: int = 1
    visits: int = 1
    again: tuple[float, float] | None = None

    @property
    def half_width(self) -> float:
        """Half the interval, in the value's unit."""
        return (self.high - self.low) / 2

    @property
    def relative_half_width(self) -> float:
        """Half the interval over the value's size."""
        return self.half_width / abs(self.value) if self.value else float("inf")

    @property
    def log_half_width(self) -> float:
        """Half the interval of the logarithm; the whole interval must be above 0."""
        return math.log(self.high / self.low) / 2

    @property
    def again_log_half_width(self) -> float:
        """The same of the figure in another run."""
        low, high = self.again or (self.low, self.high)
        return math.log(high / low) / 2

    def map(self, of: Callable[[float], float]) -> Estimate:
        """What a monotone function makes of the value and of the ends of its intervals."""
        low, high = _ordered(of(self.low), of(self.high))
        again = self.again and _ordered(of(self.again[0]), of(self.again[1]))
        return replace(self, value=of(self.value), low=low, high=high, again=again)

    def scaled(self, factor: float) -> Estimate:
        """The estimate in another unit."""
        return self.map(lambda each: each * factor)

    def plus(self, amount: float) -> Estimate:
        """The estimate with a number added that is known."""
        return self.map(lambda each: each + amount)

    def excludes(self, value: float) -> bool:
        """Whether the interval lies on one side of ``value``."""
        return not self.low <= value <= self.high


def _ordered(one: float, other: float) -> tuple[float, float]:
    return (one, other) if one <= other else (other, one)


@cache
def t_quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Half the width of Student's interval with so many degrees of freedom, in standard errors."""
    return float(stdtrit(degrees, 0.5 + confidence / 2))


def num_trimmed(n: int) -> int:
    """At each end; at least one value from four on: with few rounds the one preempted round is the rule."""
    return max(int(TRIM * n), 1) if n >= 4 else 0


def trimmed_mean(values: ArrayLike) -> Estimate:
    """The trimmed mean of ``values`` (shape ``(n,)``, one for each round) with its interval.

    Raises ``ValueError`` for fewer than two values or one that is not finite.
    """
    ordered: list[float] = sorted(np.asarray(values, dtype=np.float64).tolist())
    n = len(ordered)
    if n < 2 or not all(map(math.isfinite, ordered)):
        raise ValueError(f"at least two finite values (received {ordered})")
    trimmed = num_trimmed(n)
    inner = ordered[trimmed : n - trimmed]
    mean = math.fsum(inner) / len(inner)
    winsorized = [inner[0]] * trimmed + inner + [inner[-1]] * trimmed
    error = stdev(winsorized) / ((1 - 2 * trimmed / n) * n**0.5)
    half = t_quantile(n - 2 * trimmed - 1) * error
    return Estimate(mean, mean - half, mean + half, n)


def stdev(values: Sequence[float]) -> float:
    """The standard deviation of at least two values, over n - 1.

    Rounds are few: a list of ten takes a fifth of the time that an array does.
    """
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def student(values: ArrayLike) -> Estimate:
    """The mean of ``values`` (shape ``(n,)``, n at least 2) with Student's 95% interval.

    For few values without outliers, such as accuracies over seeds: nothing is trimmed.
    """
    given: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    n, mean = len(given), float(given.mean())
    half = t_quantile(n - 1) * float(given.std(ddof=1)) / n**0.5
    return Estimate(mean, mean - half, mean + half, n)


def geometric(ratios: ArrayLike) -> Estimate:
    """The ratio over rounds: the trimmed mean of the logarithms, back in the ratio's own scale.

    ``ratios`` has shape ``(n,)``, each above 0.
    """
    return trimmed_mean([math.log(ratio) for ratio in np.asarray(ratios, np.float64).tolist()]).map(math.exp)


def geometric_of(estimates: Sequence[Estimate]) -> Estimate:
    """The geometric mean of at least two estimates of different starts, ``n`` their number.

    Student's interval over their logarithms; no narrower than their own allow, as a few may agree by chance.
    """
    found = student([math.log(each.value) for each in estimates])
    least = math.hypot(*(each.log_half_width for each in estimates)) / found.n
    return of_log(found.value, max(found.half_width, least), found.n, starts=found.n)


def inverse(estimate: Estimate) -> Estimate:
    """One over a positive estimate."""
    return estimate.map(lambda each: 1 / each)


def sum_of(one: Estimate, other: Estimate) -> Estimate:
    """The sum of two estimates that are independent of each other: half-widths add in squares."""
    half = math.hypot(one.half_width, other.half_width)
    value = one.value + other.value
    return Estimate(value, value - half, value + half, min(one.n, other.n), min(one.starts, other.starts))


def unpaired_ratio(numerator: Estimate, denominator: Estimate) -> Estimate:
    """The ratio of two positive estimates from different rounds: half-widths of logarithms add in squares."""
    return _ratio(numerator, denominator, math.hypot(numerator.log_half_width, denominator.log_half_width))


def typical_over_mean(typical: Estimate, mean: Estimate) -> Estimate:
    """Their ratio, of which a mean step is made again; its error is what the mean has beside the typical."""
    half = math.sqrt(max(0.0, mean.log_half_width**2 - typical.log_half_width**2))
    return _ratio(typical, mean, half)


def _ratio(numerator: Estimate, denominator: Estimate, half: float) -> Estimate:
    n, starts = min(numerator.n, denominator.n), min(numerator.starts, denominator.starts)
    found = of_log(math.log(numerator.value / denominator.value), half, n, starts)
    return replace(found, visits=min(numerator.visits, denominator.visits))


def of_log(log: float, half_width: float, n: int, starts: int = 1) -> Estimate:
    """The estimate whose logarithm is ``log``, give or take ``half_width``."""
    return Estimate(math.exp(log), exponential(log - half_width), exponential(log + half_width), n, starts)


def exponential(log: float) -> float:
    """e to the power of ``log``; infinite where no number is as large: of one of very many, say."""
    return math.exp(log) if log < LARGEST_LOG else math.inf


def ratio_of_runs(numerator: Estimate, denominator: Estimate) -> Estimate:
    """The ratio of two positive figures of different runs: its interval holds what runs differ by.

    What another run of one of them would give differs from its figure by the noise of both: a half-width is
    that over the root of 2.
    """
    both = math.hypot(numerator.again_log_half_width, denominator.again_log_half_width)
    return _ratio(numerator, denominator, both / math.sqrt(2))


def simultaneous(estimate: Estimate, among: int) -> Estimate:
    """An estimate whose interval lies around its value, such as a part of a step, as one of so many.

    By the degrees of freedom of the rounds' trimmed mean; a pooled figure has as many as make it normal.
    """
    is_pooled = estimate.again is not None
    degrees = MANY if is_pooled else estimate.n - 2 * num_trimmed(estimate.n) - 1
    if among <= 1 or degrees < 1 or estimate.half_width == 0 or not math.isfinite(estimate.half_width):
        return estimate
    wider = t_quantile(degrees, CONFIDENCE ** (1 / among)) / t_quantile(degrees)
    half = estimate.half_width * wider
    return Estimate(estimate.value, estimate.value - half, estimate.value + half, estimate.n, estimate.starts)


NORMAL_95 = 1.96  # standard errors in half of a 95% interval of many values
LEAST_VALUES = 3  # seeds, restarts, runs: fewer have a value and no interval
Bounds = tuple[float, float]
SHARE: Bounds = (0.0, 1.0)
POSITIVE: Bounds = (0.0, math.inf)
ANYWHERE: Bounds = (-math.inf, math.inf)


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
