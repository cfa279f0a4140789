"""A measurement's rounds as series, one value a round; trends over them, outliers, devices that differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from raybench.analysis.stats.statistics import Estimate, device_factors, geometric
from raybench.records.requests import Variant
from raybench.records.results import Block, StepsResult

Series = NDArray[np.float64]
ALONE: tuple[Variant, ...] = ("plain", "base")  # on one device at a time, which changes in turn


def slowest_rank_s(block: Block) -> float:
    """The block mean of its slowest rank, in s: the step time of a block."""
    return max(block.step_time_s)


def mean_rank_s(block: Block) -> float:
    """The block mean over all of its ranks, in s."""
    return block.mean_s


def slowest_step_s(block: Block) -> float:
    """The mean over steps of each step's slowest rank, in s."""
    return block.slowest_s


def series(
    measurement: StepsResult, variant: Variant, value: Callable[[Block], float] = slowest_rank_s
) -> Series | None:
    """``value`` of the blocks of ``variant``, in s, shape ``(rounds,)``; None without two of them.

    Of a variant that runs on one device at a time, what that device differs by is taken out.
    """
    blocks = [each.block(variant) for each in measurement.rounds]
    values = np.array([value(block) if block else np.nan for block in blocks], dtype=np.float64)
    if int(np.isfinite(values).sum()) < 2:
        return None
    if variant in ALONE:
        values = values * _turns(measurement, blocks, values)
    return values


def step_series(measurement: StepsResult) -> Series | None:
    """The step times of the rounds, in s, shape ``(rounds,)``: of ``ddp``, on one device of ``plain``."""
    values = series(measurement, "ddp")
    return values if values is not None else series(measurement, "plain")


def _turns(measurement: StepsResult, blocks: Sequence[Block | None], values: Series) -> Series:
    """The factors of ``device_factors``, from the ratio to ddp where there is one; 1 without a block."""
    measured = [each.block("ddp") for each in measurement.rounds]
    beside = all(block is None or other for block, other in zip(blocks, measured, strict=True))
    divisors = [slowest_rank_s(other) if other and beside else 1.0 for other in measured]
    present = np.isfinite(values)
    devices = [block.ranks[0] for block in blocks if block is not None]
    factors = np.ones(len(values))
    factors[present] = device_factors((values / divisors)[present], devices)
    return factors


def level(values: Series) -> Estimate:
    """The typical value over the rounds that have one."""
    return geometric(values[np.isfinite(values)])


def paired(numerator: Series, denominator: Series) -> Series | None:
    """The ratios of the rounds that have both, or None where fewer than two have."""
    ratios = numerator / denominator
    present: Series = ratios[np.isfinite(ratios)]
    return present if len(present) >= 2 else None


PAIRS_SIGNIFICANCE = 0.01  # significance; with 0.05, one steady trial in twenty would have devices apart


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
    half = float(stdtrit(degrees, 1 - PAIRS_SIGNIFICANCE / 2 / num_pairs)) * error
    return DeviceSpread(int(names[slow]), int(names[fast]), float(means[slow] - means[fast]), half)
