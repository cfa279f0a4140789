"""Which setting to measure next: main effects on a logarithm, small interactions, expected improvement.

The logarithm of a throughput is taken as a sum: a level, an effect of each knob's value, a smaller one of
each pair of values, and noise, all normal with mean 0. The batch is ordered, and batches near each other do
alike (by the distance of their logarithms); the values of other knobs have nothing in common. That is a
Gaussian process whose covariance is a sum over knobs and pairs of them (Duvenaud, Nickisch and Rasmussen,
2011, "Additive Gaussian processes", NeurIPS 24). Its sizes are stated, not fitted: six trials cannot tell
them. What it finds, and what other methods find: benchmarks/search_methods.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

# Standard deviations, all of natural logarithms.
LEVEL = 3.0  # of the machine's throughput, around the mean of what was measured
BATCH = 1.5  # of the effect of a batch: over a range of 64 times a throughput grows up to tenfold
BATCH_REACH = 3.0  # the correlation of two batches falls by e over a range of e to the power of this
KNOB = 0.2  # of the effect of another knob's value
PAIR = 0.05  # of what two values do together beside what each does alone
NOISE = 0.03  # of one trial's estimate, drift from trial to trial included
GIVEN_UP = 2  # failures of a value that was never measured

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """Settings in numbers, a row a setting: the batch as its logarithm, other values as numbers of them."""

    values: Array  # shape (settings, knobs)
    ordered: tuple[bool, ...]  # of each knob: the batch

    def __getitem__(self, rows: slice) -> Points:
        """Some of the settings."""
        return Points(self.values[rows], self.ordered)


def expected_improvement(measured: Points, logs: Array, others: Points) -> tuple[Array, Array]:
    """How much each of ``others`` is expected to exceed the best of ``measured``, and its expected logarithm.

    ``logs`` are the measured ones' logarithms, shape ``(measured,)``; the larger the better. Both results
    have shape ``(others,)``. The best is the largest expected logarithm among the measured settings, since
    the largest measured one is flattered by noise. Jones, Schonlau and Welch (1998), "Efficient global
    optimization of expensive black-box functions", J. Global Optimization 13, equation 15.
    """
    mean = float(logs.mean())
    alike = _covariance(measured, measured)
    root = np.linalg.cholesky(alike + NOISE**2 * np.eye(len(logs)))
    weights = np.linalg.solve(root, logs - mean)
    best = float((mean + np.linalg.solve(root, alike).T @ weights).max())
    shared = np.linalg.solve(root, _covariance(measured, others))
    expected: Array = mean + shared.T @ weights
    variance = _variance(others) - (shared**2).sum(axis=0)
    deviation = np.sqrt(np.maximum(variance, 1e-12))
    z = (expected - best) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    improvement: Array = (expected - best) * ndtr(z) + deviation * density
    return np.maximum(improvement, 0.0), expected


def _sizes(ordered: Sequence[bool]) -> list[float]:
    return [BATCH if each else KNOB for each in ordered]


def _covariance(one: Points, other: Points) -> Array:
    """Shape ``(one, other)``."""
    alike = []
    for column, is_ordered in enumerate(one.ordered):
        apart = np.abs(one.values[:, column, None] - other.values[None, :, column])
        alike.append(np.exp(-apart / BATCH_REACH) if is_ordered else (apart == 0).astype(np.float64))
    total: Array = np.full((len(one.values), len(other.values)), LEVEL**2)
    for size, each in zip(_sizes(one.ordered), alike, strict=True):
        total += size**2 * each
    for first, second in itertools.combinations(alike, 2):
        total += PAIR**2 * first * second
    return total


def _variance(points: Points) -> float:
    """Of every setting alike, before anything is measured."""
    knobs = len(points.ordered)
    return LEVEL**2 + sum(size**2 for size in _sizes(points.ordered)) + PAIR**2 * knobs * (knobs - 1) / 2


def chance_of_success(measured: Array, failed: Array, others: Array) -> Array:
    """How likely each of ``others`` is to be measured and not to fail, shape ``(others,)``.

    Rows are settings, columns knobs, as numbers of values. The least likely of a setting's values counts:
    (1 + measured with it) / (1 + measured and failed with it); 0 for a value that failed twice and was never
    measured. A failure leaves a value that was often measured nearly as likely as before.
    """
    chances: Array = np.ones(len(others))
    for column in range(others.shape[1]):
        for value in np.unique(failed[:, column]):
            good = np.count_nonzero(measured[:, column] == value)
            bad = np.count_nonzero(failed[:, column] == value)
            chance = (1 + good) / (1 + good + bad) if good or bad < GIVEN_UP else 0.0
            here = others[:, column] == value
            chances[here] = np.minimum(chances[here], chance)
    return chances
