"""A measurement's rounds as series, one value a round, and what the devices in them differ by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.stats.statistics import Estimate, geometric
from raybench.records.requests import Variant
from raybench.records.results import Block, Round, StepsResult

Series = NDArray[np.float64]
SLOPE_SD = 0.5  # around 1: a device that is slower among others is most often slower alone


def slowest_rank_s(block: Block) -> float:
    """The block mean of its slowest rank, in s: the step time of a block."""
    return max(block.step_time_s)


def mean_rank_s(block: Block) -> float:
    """The block mean over all of its ranks, in s."""
    return sum(block.step_time_s) / len(block.step_time_s)


def slowest_step_s(block: Block) -> float:
    """The mean over steps of each step's slowest rank, in s."""
    return block.slowest_s


def series(
    measurement: StepsResult, variant: Variant, value: Callable[[Block], float] = slowest_rank_s
) -> Series | None:
    """``value`` of the blocks of ``variant``, in s, shape ``(rounds,)``; None without two of them."""
    blocks = [each.block(variant) for each in measurement.rounds]
    values = np.array([value(block) if block else np.nan for block in blocks], dtype=np.float64)
    return values if int(np.isfinite(values).sum()) >= 2 else None


def level(values: Series) -> Estimate:
    """The typical value over the rounds that have one."""
    return geometric(values[np.isfinite(values)])


def device_effects(trials: Iterable[tuple[int, Sequence[Round]]]) -> dict[tuple[int, int], float]:
    """By how much each device is slower alone than the mean of all, as a logarithm; by group and rank.

    ``trials``: of each the group of workers, and the rounds. From ``concurrent``, where every device is timed
    in every round, of the trials on the most devices of a group. Devices that differ there by what crowds
    them differ less alone: the effects are scaled by the slope with which ``plain``, which is on another
    device in each round, follows them. Where its few blocks were on devices that are alike they do not tell,
    and it is 1 (a ridge, by the noise of ``plain``).
    """
    listed = list(trials)
    apart = defaultdict[int, list[Series]](list)
    most = dict[int, tuple[int, ...]]()
    for group, rounds in listed:
        for block in blocks_of(rounds, "concurrent"):
            if len(block.ranks) > len(most.get(group, ())):
                most[group] = block.ranks
                apart[group].clear()
            if block.ranks == most[group]:
                logs = np.log(block.step_time_s)
                apart[group].append(logs - logs.mean())
    effects = {
        (group, rank): float(effect)
        for group, rows in apart.items()
        for rank, effect in zip(most[group], np.median(rows, axis=0), strict=True)
    }
    products = squares = rest = 0.0
    degrees = -1
    for group, rounds in listed:
        blocks = [each for each in blocks_of(rounds, "plain") if (group, each.ranks[0]) in effects]
        if len(blocks) > 1:
            logs = np.log([each.step_time_s[0] for each in blocks])
            slow = np.array([effects[group, each.ranks[0]] for each in blocks])
            products += float(((logs - logs.mean()) * (slow - slow.mean())).sum())
            squares += float(((slow - slow.mean()) ** 2).sum())
            rest += float(((logs - logs.mean()) ** 2).sum())
            degrees += len(blocks) - 1
    noise = max(rest - (products**2 / squares if squares else 0.0), 0.0) / max(degrees, 1)
    ridge = noise / SLOPE_SD**2 if squares else 1.0
    slope = min(max((products + ridge) / (squares + ridge), 0.0), 1.0)
    return {key: slope * effect for key, effect in effects.items()}


def blocks_of(rounds: Sequence[Round], variant: Variant) -> list[Block]:
    """Those of ``variant``, of the rounds that have one."""
    return [block for each in rounds if (block := each.block(variant)) is not None]
