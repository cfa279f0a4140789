"""torch.nn.DataParallel: the leader's process drives the devices of its whole team."""

from __future__ import annotations

from typing import Any

import torch

from raybench.errors import InvalidTrialError
from raybench.machine.host import host_id
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.devices.cuda import gpu_uuid


def device_ids(team: Team, device: Device) -> list[int]:
    """The team's GPUs as the leader numbers them. A collective call on the control group.

    Raises ``InvalidTrialError`` where one process cannot drive them all.
    """
    if not device.drives_several:
        raise InvalidTrialError("strategy dp exists on GPUs only")
    gpu = device.torch_device
    places: list[tuple[str, int | None, str]] = team.gather((host_id(), gpu.index, gpu_uuid(gpu)))
    if len({host for host, _, _ in places}) > 1:
        raise InvalidTrialError("strategy dp: one process drives all devices, so none may be on another node")
    seen = [index is not None and _is_device(index, uuid) for _, index, uuid in places]
    if not all(team.gather(all(seen))[:1]):  # the leader's view
        raise InvalidTrialError("strategy dp: the leader's process does not see every device of the team")
    return [index for _, index, _ in places if index is not None]


def joined(batches: list[Any]) -> Any:
    """One batch of all samples of ``batches``: every tensor concatenated along its first dimension."""
    first = batches[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(batches)
    if isinstance(first, dict):
        return {key: joined([batch[key] for batch in batches]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):  # a named tuple
        return type(first)(*(joined(list(parts)) for parts in zip(*batches, strict=True)))
    if isinstance(first, list | tuple):
        return type(first)(joined(list(parts)) for parts in zip(*batches, strict=True))
    return first


def _is_device(index: int, uuid: str) -> bool:
    return index < torch.cuda.device_count() and gpu_uuid(index) == uuid
