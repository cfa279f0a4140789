"""DistributedDataParallel as a setting asks for it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from raybench.spec.knobs import Setting
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.strategies.hooks import Hook, compression_hook, no_transfer
from raybench.workloads.protocol import Workload

# torch 2.14 gave DDP's argument a new name
_RENAMED = "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
SYNC_BUFFERS = "forward_sync_buffers" if _RENAMED else "broadcast_buffers"


@dataclass(frozen=True)
class Communication:
    """How DDP sends a bucket."""

    hook: Hook | None = None  # None: DDP's own all-reduce
    state: Any = None  # the hook's first argument


def wrap(module: nn.Module, team: Team, setting: Setting, device: Device) -> DistributedDataParallel:
    """DDP over the team's data group, with its own all-reduce. A collective call."""
    return _ddp(module, team, setting, device, sync_buffers=setting.broadcast_buffers)


def set_communication(
    wrapper: DistributedDataParallel, workload: Workload, setting: Setting, team: Team
) -> Communication:
    """Register the workload's own hook, or the one for the knob ``gradient_compression``."""
    own = getattr(workload, "communication_hook", None)
    if own is not None:
        state, hook = own(team.data)
        communication = Communication(hook, state)
    else:
        communication = Communication(compression_hook(setting.gradient_compression), team.data)
    if communication.hook is not None:
        wrapper.register_comm_hook(communication.state, communication.hook)
    return communication


def wrap_without_transfers(
    module: nn.Module, team: Team, setting: Setting, device: Device
) -> DistributedDataParallel:
    """DDP with a hook that sends nothing, not even when it is made: the weights are those of another copy.

    The first steps of all ranks agree on the order of the buckets.
    """
    wrapper = _ddp(module, team, setting, device, sync_buffers=False, init_sync=False)
    wrapper.register_comm_hook(None, no_transfer)
    return wrapper


def _ddp(
    module: nn.Module,
    team: Team,
    setting: Setting,
    device: Device,
    *,
    sync_buffers: bool,
    init_sync: bool = True,
) -> DistributedDataParallel:
    return DistributedDataParallel(
        module,
        device_ids=device.ddp_device_ids,
        process_group=team.data,
        init_sync=init_sync,
        bucket_cap_mb=None if setting.bucket_cap_mb == "default" else setting.bucket_cap_mb,
        static_graph=setting.static_graph,
        find_unused_parameters=setting.find_unused_parameters,
        gradient_as_bucket_view=setting.gradient_as_bucket_view,
        **{SYNC_BUFFERS: sync_buffers},  # type: ignore[arg-type]
    )
