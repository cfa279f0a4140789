"""A measurement's rounds as series, one value a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

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
