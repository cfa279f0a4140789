"""The largest message of a sweep for which every rank has memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from raybench.worker.collectives.operations import Buffers
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.failures import AgreedFailure
from raybench.worker.memory import memory_limits

# For what a rank needs room where memory is promised that is not there, in messages: the message, a share of
# it, and the copy that gloo's reduce_scatter makes (pytorch pull request 118911).
MESSAGES_TAKEN = 3
GIBIBYTE = 2**30


def allocate(sizes: Sequence[int], team: Team, device: Device) -> tuple[Buffers | None, dict[int, str]]:
    """Buffers for the largest of ``sizes`` (ascending, in bytes) that fits on all ranks; why others do not.

    None where none fits. A collective call.
    """
    room_bytes, too_large = _room_bytes(team, device), dict[int, str]()
    for size in reversed(sizes):
        try:
            return team.agreed(partial(_buffers, size, team, device, room_bytes)), too_large
        except AgreedFailure as failure:
            if not failure.out_of_memory:
                raise
            too_large[size] = str(failure)
            device.release_memory()
    return None, too_large


def _buffers(size: int, team: Team, device: Device, room_bytes: int | None) -> Buffers:
    needed_bytes = MESSAGES_TAKEN * size
    if room_bytes is not None and needed_bytes > room_bytes:
        raise MemoryError(
            f"{needed_bytes / GIBIBYTE:.3g} GiB wanted, {room_bytes / GIBIBYTE:.3g} GiB left for this rank"
        )
    return Buffers(size, team, device.torch_device)


def _room_bytes(team: Team, device: Device) -> int | None:
    """What this rank may take, where it must not be tried: on a device that gives memory that it has not."""
    device.release_memory()
    available = device.available_memory() if device.overcommits else None
    limits = memory_limits(team.gather(available))
    return None if limits is None or available is None else limits[team.rank] - available.taken_bytes
