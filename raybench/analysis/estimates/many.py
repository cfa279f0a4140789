"""Estimates of many trials at once: what ``statistics`` says of one series, said of every row of a matrix.

A trial has ten rounds, and numpy takes as long for an operation on ten numbers as for one on a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.estimates.statistics import Estimate, num_trimmed, t_quantile

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """A value with its 95% interval for each of several trials of ``n`` rounds each; shapes ``(trials,)``."""

    value: Floats
    low: Floats
    high: Floats
    n: int

    @property
    def half_width(self) -> Floats:
        """Half the intervals, in the values' unit."""
        return (self.high - self.low) / 2

    def scaled(self, factor: Floats | float) -> Estimates:
        """The estimates in another unit, each by its own factor where there are several."""
        ends = self.low * factor, self.high * factor
        return Estimates(self.value * factor, np.minimum(*ends), np.maximum(*ends), self.n)

    def rates(self, amount: Floats) -> Estimates:
        """``amount`` over each of these times, which are above 0."""
        return Estimates(amount / self.value, amount / self.high, amount / self.low, self.n)

    def each(self) -> list[Estimate]:
        """One estimate a trial."""
        ends = self.value.tolist(), self.low.tolist(), self.high.tolist()
        return [Estimate(value, low, high, self.n) for value, low, high in zip(*ends, strict=True)]


def trimmed_means(values: Floats) -> Estimates:
    """``statistics.trimmed_mean`` of each row of ``values``, shape ``(trials, rounds)``, finite.

    Raises ``ValueError`` for fewer than two rounds.
    """
    ordered: Floats = np.sort(values, axis=1)
    n = ordered.shape[1]
    if n < 2:
        raise ValueError(f"at least two rounds (received {n})")
    trimmed = num_trimmed(n)
    inner = ordered[:, trimmed : n - trimmed]
    least, most = inner[:, :1], inner[:, -1:]
    equal = (least == most)[:, 0]  # then neither mean nor deviation is to be rounded
    mean = np.where(equal, least[:, 0], inner.mean(axis=1))
    deviation = np.where(equal, 0.0, np.clip(ordered, least, most).std(axis=1, ddof=1))
    error = deviation / ((1 - 2 * trimmed / n) * n**0.5)
    half = t_quantile(n - 2 * trimmed - 1) * error
    return Estimates(mean, mean - half, mean + half, n)


def geometrics(ratios: Floats) -> Estimates:
    """``statistics.geometric`` of each row of ``ratios``, shape ``(trials, rounds)``, each above 0."""
    logs = trimmed_means(np.log(ratios))
    return Estimates(np.exp(logs.value), np.exp(logs.low), np.exp(logs.high), logs.n)


def measured(values: Floats) -> Floats:
    """The columns of the rounds that have a value, which are the same in all rows."""
    return np.ascontiguousarray(values[:, np.isfinite(values[0])])  # a row is summed alike wherever it stands
