"""The memory of the ranks of a trial: what each may take, and what each took."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.worker.cache import GroupCache
from raybench.worker.communicators import Team
from raybench.worker.devices.base import AvailableMemory, Device


def memory_limits_of_ranks(
    team: Team, cache: GroupCache, device: Device, *, anew: bool = False
) -> tuple[int, ...] | None:
    """The bytes that each rank may take; what an earlier trial found, unless it is asked ``anew``.

    None where a rank cannot tell. A collective call.
    """
    known, ranks = cache.memory_limits, team.ranks
    if anew or ranks not in known:
        known[ranks] = memory_limits(team.gather(device.available_memory()))
    return known[ranks]


def memory_limits(ranks: Sequence[AvailableMemory | None]) -> tuple[int, ...] | None:
    """The bytes that each rank may take: what it has, and an equal share of what its place has left."""
    known = [rank for rank in ranks if rank is not None]
    if len(known) < len(ranks):
        return None
    limits = []
    for rank in known:
        neighbours = [other.left_bytes for other in known if other.place == rank.place]
        limits.append(rank.taken_bytes + min(neighbours) // len(neighbours))
    return tuple(limits)


def all_known(values: Sequence[int | None]) -> tuple[int, ...] | None:
    """The values, where every rank has one."""
    known = [value for value in values if value is not None]
    return tuple(known) if len(known) == len(values) else None
