"""Trends over rounds that outliers do not sway, the outliers themselves, and devices that differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from raybench.analysis.estimates.rounds import Series

OUTLIER_SCORE = 3.5  # modified z-score
DEVICES_DIFFER = 0.01  # significance; with 0.05, one steady trial in twenty would have devices apart
OUTLIER_LEAST = 0.10  # relative; less is no outlier, however quiet the other rounds


def outlying(values: Series) -> NDArray[np.bool_]:
    """Whether a round's logarithm has a modified z-score over 3.5 and is 10% off the median at least.

    ``values``: times, shape ``(rounds,)``, NaN where a round has none. Iglewicz and Hoaglin (1993), "How to
    detect and handle outliers": 0.6745 (x - median) / MAD.
    """
    logs = np.log(values)
    off = np.abs(logs - np.nanmedian(logs))
    spread = np.nanmedian(off) / 0.6745
    return np.asarray(off > max(OUTLIER_SCORE * spread, OUTLIER_LEAST))


def mann_kendall(values: Series) -> float:
    """The two-sided significance of a monotone trend, normal approximation with continuity correction.

    ``values``: finite, shape ``(rounds,)``. Mann (1945), "Nonparametric tests against trend", Econometrica
    13. Outliers do not sway it.
    """
    n = len(values)
    i, j = np.triu_indices(n, 1)
    score = float(np.sign(values[j] - values[i]).sum())  # pairs of rounds that rise, less those that fall
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return float(2 * ndtr(-max((abs(score) - 1) / deviation, 0.0)))


def theil_sen(at: Series, values: Series) -> float:
    """The median slope over all pairs of points: Sen (1968), J. Am. Stat. Assoc. 63."""
    i, j = np.triu_indices(len(values), 1)
    apart = at[j] - at[i]
    slopes = (values[j] - values[i])[apart > 0] / apart[apart > 0]
    return float(np.median(slopes)) if len(slopes) else 0.0


@dataclass(frozen=True)
class DeviceSpread:
    """The slowest and the fastest of the devices that were measured alone, in turns.

    ``apart`` is the difference of the logarithms of their times, its 99% interval ``half`` to each side.
    """

    slow: int
    fast: int
    apart: float
    half: float


def device_spread(logs: Series, devices: Sequence[int]) -> DeviceSpread | None:
    """How far devices are apart; ``logs``: of the blocks' times, ``devices``: on which each block ran.

    Two-sample t, Bonferroni over all pairs of devices. None with one device, or fewer than two blocks more
    than devices.
    """
    names, turns = np.unique(np.asarray(devices, dtype=np.int64), return_inverse=True)
    degrees = len(devices) - len(names)
    if len(names) < 2 or degrees < 2:
        return None
    counts = np.bincount(turns)
    means = np.array([logs[turns == number].mean() for number in range(len(names))])
    within = float(((logs - means[turns]) ** 2).sum())
    slow, fast = int(means.argmax()), int(means.argmin())
    error = math.sqrt(within / degrees * (1 / counts[slow] + 1 / counts[fast]))
    num_pairs = len(names) * (len(names) - 1) / 2
    half = float(stdtrit(degrees, 1 - DEVICES_DIFFER / 2 / num_pairs)) * error
    return DeviceSpread(int(names[slow]), int(names[fast]), float(means[slow] - means[fast]), half)
