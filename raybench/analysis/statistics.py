"""The one estimator: the 10% trimmed mean over rounds with its Student-t interval.

Tukey and McLaughlin (1963), "Less vulnerable confidence and significance procedures for location based on
a single sample", Sankhya A 25: the standard error of a trimmed mean is the Winsorized standard deviation
over (1 - 2 g/n) sqrt(n), with n - 2g - 1 degrees of freedom, g values trimmed at each end.

Imported by the worker's stopping rule too, so: numpy and scipy only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

TRIM = 0.10  # of the rounds, at each end
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its 95% interval and the number of rounds behind it."""

    value: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the interval, in the value's unit."""
        return (self.high - self.low) / 2

    @property
    def relative_half_width(self) -> float:
        """Half the interval over the value's size."""
        return self.half_width / abs(self.value) if self.value else float("inf")

    def scaled(self, factor: float) -> Estimate:
        """The estimate in another unit."""
        low, high = sorted((self.low * factor, self.high * factor))
        return Estimate(self.value * factor, low, high, self.n)

    def excludes(self, value: float) -> bool:
        """Whether the interval lies on one side of ``value``."""
        return not self.low <= value <= self.high


@cache
def _t_quantile(degrees: int) -> float:
    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2))


def trimmed_mean(values: ArrayLike) -> Estimate:
    """The 10% trimmed mean of ``values`` (shape ``(n,)``, one for each round) with its interval.

    At least one value is trimmed at each end from four on: with few rounds the one preempted round is
    the rule. Raises ``ValueError`` for fewer than two values or one that is not finite.
    """
    ordered: NDArray[np.float64] = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if n < 2 or not np.isfinite(ordered).all():
        raise ValueError(f"at least two finite values (received {ordered.tolist()})")
    trimmed = max(int(TRIM * n), 1) if n >= 4 else 0
    kept = ordered[trimmed : n - trimmed]
    mean = float(kept.mean())
    winsorized = np.clip(ordered, kept[0], kept[-1])
    error = float(winsorized.std(ddof=1)) / ((1 - 2 * trimmed / n) * n**0.5)
    half = _t_quantile(n - 2 * trimmed - 1) * error
    return Estimate(mean, mean - half, mean + half, n)


def student(values: ArrayLike) -> Estimate:
    """The mean of ``values`` (shape ``(n,)``, n at least 2) with Student's 95% interval.

    For few values without outliers, such as accuracies over seeds: nothing is trimmed.
    """
    given: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    n, mean = len(given), float(given.mean())
    half = _t_quantile(n - 1) * float(given.std(ddof=1)) / n**0.5
    return Estimate(mean, mean - half, mean + half, n)


def geometric(ratios: ArrayLike) -> Estimate:
    """The ratio over rounds: the trimmed mean of the logarithms, back in the ratio's own scale.

    ``ratios`` has shape ``(n,)``, each above 0.
    """
    log = trimmed_mean(np.log(np.asarray(ratios, dtype=np.float64)))
    return Estimate(float(np.exp(log.value)), float(np.exp(log.low)), float(np.exp(log.high)), log.n)


def relative_half_width(ratios: Sequence[float]) -> float:
    """Half the 95% interval of the ratio's logarithm: what the stopping rule compares with the asked one."""
    return trimmed_mean(np.log(np.asarray(ratios, dtype=np.float64))).half_width


def unpaired_ratio(numerator: Estimate, denominator: Estimate) -> Estimate:
    """The ratio of two positive estimates from different rounds; half-widths of logarithms add in squares."""
    log = math.log(numerator.value / denominator.value)
    half = math.hypot(*(math.log(each.high / each.low) / 2 for each in (numerator, denominator)))
    n = min(numerator.n, denominator.n)
    return Estimate(math.exp(log), math.exp(log - half), math.exp(log + half), n)
