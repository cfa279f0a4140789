"""The batch below which more devices make it slower: where the speed-up passes 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.estimates.statistics import Estimate

FURTHEST = 4.0  # times: of measured neighbours that are further apart no point between is told


@dataclass(frozen=True)
class Crossover:
    """Where the speed-up passes 1, interpolated between two measured batches."""

    batch: float
    low: float | None  # where the upper ends of the intervals pass 1; None: below what was measured
    high: float | None  # where the lower ends do; None: above it
    below: int  # the measured neighbours
    above: int
    brackets: tuple[tuple[int, int], ...]  # every two neighbours on both sides of 1, whichever way
    is_slower: bool  # at a batch below, with the whole interval
    least: int  # of the batches measured
    most: int

    @property
    def is_wide(self) -> bool:
        """Whether the neighbours are too far apart to name a batch between them."""
        return self.above > FURTHEST * self.below


def crossover(points: Sequence[tuple[int, Estimate]]) -> Crossover | None:
    """The last passage of the speed-up from below 1 to 1, over the batch.

    ``points`` has the batch and the speed-up there, in any order. Between neighbours log(speed-up) is a
    straight line over log(batch). The interval is where the ends of the speed-ups' intervals pass 1.
    None where no two neighbours lie on both sides of 1.
    """
    ordered = sorted(points, key=lambda point: point[0])
    batches, values = [batch for batch, _ in ordered], [speedup.value for _, speedup in ordered]
    found = _passage(batches, values)
    if found is None:
        return None
    batch, index = found
    optimistic = _passage(batches, [speedup.high for _, speedup in ordered])
    pessimistic = _passage(batches, [speedup.low for _, speedup in ordered])
    return Crossover(
        batch,
        optimistic[0] if optimistic else None,
        pessimistic[0] if pessimistic else None,
        batches[index],
        batches[index + 1],
        tuple(
            (batches[place], batches[place + 1])
            for place in range(len(batches) - 1)
            if (values[place] < 1) != (values[place + 1] < 1)
        ),
        any(speedup.high < 1 for _, speedup in ordered[: index + 1]),
        batches[0],
        batches[-1],
    )


def _passage(batches: Sequence[int], speedups: Sequence[float]) -> tuple[float, int] | None:
    for index in range(len(batches) - 2, -1, -1):
        lower, upper = speedups[index], speedups[index + 1]
        if lower < 1 <= upper:
            share = -math.log(lower) / math.log(upper / lower)
            batch = batches[index] * (batches[index + 1] / batches[index]) ** share
            return batch, index
    return None
