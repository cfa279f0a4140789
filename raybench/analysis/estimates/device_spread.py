"""How far devices that were measured alone, in turns, are apart: of many trials at once, a row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from raybench.analysis.estimates.many import Floats

SIGNIFICANCE = 0.01  # with 0.05, one steady trial in twenty would have devices apart


@dataclass(frozen=True)
class DeviceSpreads:
    """The slowest and the fastest device of each trial; shapes ``(trials,)``.

    ``apart`` is the difference of the logarithms of their times, its 99% interval ``half`` to each side.
    """

    slow: NDArray[np.int64]
    fast: NDArray[np.int64]
    apart: Floats
    half: Floats


def device_spreads(logs: Floats, devices: Sequence[int]) -> DeviceSpreads | None:
    """Of ``logs`` of blocks' times, shape ``(trials, blocks)``; ``devices``: on which each block ran.

    Two-sample t, Bonferroni over all pairs of devices. None with one device, or fewer than two blocks more
    than devices.
    """
    names, turns = np.unique(np.asarray(devices, dtype=np.int64), return_inverse=True)
    degrees = len(devices) - len(names)
    if len(names) < 2 or degrees < 2:
        return None
    counts = np.bincount(turns)
    means = np.column_stack([logs[:, turns == number].mean(axis=1) for number in range(len(names))])
    within = ((logs - means[:, turns]) ** 2).sum(axis=1)
    slow, fast = means.argmax(axis=1), means.argmin(axis=1)
    error = np.sqrt(within / degrees * (1 / counts[slow] + 1 / counts[fast]))
    num_pairs = len(names) * (len(names) - 1) / 2
    half = stdtrit(degrees, 1 - SIGNIFICANCE / 2 / num_pairs) * error
    return DeviceSpreads(names[slow], names[fast], means.max(axis=1) - means.min(axis=1), half)
