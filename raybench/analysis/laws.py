"""What further devices brought, and what Amdahl's and Gustafson's laws make of a measured speed-up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from raybench.analysis.stats.statistics import Estimate, sum_of

DOUBLINGS = (2, 4, 8)  # of the largest measured world size, which are asked about by default


def amdahl_speedup(serial_fraction: float, world_size: float) -> float:
    """Amdahl (1967), AFIPS 30: 1 / (f + (1 - f) / n)."""
    return 1 / (serial_fraction + (1 - serial_fraction) / world_size)


def gustafson_speedup(serial_fraction: float, world_size: float) -> float:
    """Gustafson (1988), "Reevaluating Amdahl's law", CACM 31(5): n - f (n - 1)."""
    return world_size - serial_fraction * (world_size - 1)


def serial_fraction(speedup: Estimate, world_size: int) -> Estimate:
    """Amdahl's f of a measured speed-up over one device: f = (1/S - 1/n) / (1 - 1/n).

    Karp and Flatt (1990), "Measuring parallel processor performance", CACM 33(5), equation 2.
    """
    return speedup.map(lambda each: (1 / each - 1 / world_size) / (1 - 1 / world_size))


@dataclass(frozen=True)
class MarginalReturn:
    """What each device beyond ``fewer`` brings on ``more`` of them."""

    fewer: int
    more: int
    each: Estimate  # of one device's throughput: 1 is as much as the first device brings


def marginal_returns(speedups: Iterable[tuple[int, Estimate]]) -> tuple[MarginalReturn, ...]:
    """(S(n) - S(m)) / (n - m) of each doubling of the world size, from m to n.

    It is the throughput that is gained over that of n - m devices as good as one alone. From the fewest
    devices on the next world size is the smallest measured one of at least twice as many.
    ``speedups`` over one device, by world size; or over the fewest measured, whose own is exactly 1: then
    it is of a device among these. Every speed-up is a ratio within its own rounds, so the two are
    independent, and their half-widths add in squares.
    """
    known = dict(sorted(speedups))
    base = fewer = min(known, default=1)
    found = list[MarginalReturn]()
    for more in sorted(known):
        if more >= 2 * fewer:
            gained = sum_of(known[more], known[fewer].scaled(-1))
            found.append(MarginalReturn(fewer, more, gained.scaled(base / (more - fewer))))
            fewer = more
    return tuple(found)


@dataclass(frozen=True)
class ByLaw:
    """What one measured speed-up over one device makes of more devices; no prediction."""

    law: Literal["Amdahl", "Gustafson"]
    measured_on: int  # devices
    fraction: Estimate  # f of the law, between 0 and 1
    speedups: tuple[tuple[int, Estimate], ...]  # by world size


def by_law(
    speedup: Estimate, world_size: int, *, is_strong: bool, asked: Sequence[int] = (), most: float = math.inf
) -> ByLaw | None:
    """Amdahl's law under strong scaling, Gustafson's under weak, for ``asked``, else for the next doublings.

    None where the speed-up is not surely above 1 and at most ideal, as no f gives it then; and where all of
    these are more devices than ``most``, the samples of a global batch.
    """
    sizes = asked or [world_size * factor for factor in DOUBLINGS]
    sizes = [size for size in sizes if world_size < size <= most]
    if not sizes or not 1 < speedup.low <= speedup.value <= world_size:
        return None
    at_most_ideal = replace(speedup, high=min(speedup.high, world_size), again=None)
    if is_strong:
        f, of_one = serial_fraction(at_most_ideal, world_size), amdahl_speedup
    else:
        f = at_most_ideal.map(lambda each: (world_size - each) / (world_size - 1))
        of_one = gustafson_speedup
    speedups = tuple((size, f.map(partial(of_one, world_size=size))) for size in sizes)
    return ByLaw("Amdahl" if is_strong else "Gustafson", world_size, f, speedups)
