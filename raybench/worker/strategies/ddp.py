"""DistributedDataParallel as a setting defines it: its hooks, and what it reports of its buckets."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _create_work_from_future
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from raybench.spec.knobs import Setting, bucket_sizes_mb
from raybench.spec.workloads import ScriptSpec
from raybench.worker.communicators import Team, default_group
from raybench.worker.devices.device import Device
from raybench.workloads.protocol import Workload

# torch 2.14 gave DDP's argument a new name
_ARGUMENTS = inspect.signature(DistributedDataParallel.__init__).parameters
SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _ARGUMENTS else "broadcast_buffers"
# knobs that are arguments of this torch's DDP, by their own names
FLAGS = tuple(name for name in ScriptSpec.DDP_KNOBS if name in _ARGUMENTS and name != "broadcast_buffers")


RECORDED_CALLS = 3  # of a hook for each bucket: DDP rebuilds its buckets after the first


@dataclass(frozen=True)
class Communication:
    """How DDP sends a bucket."""

    hook: Hook | None = None  # None: DDP's own all-reduce
    state: Any = None  # the hook's first argument
    # the workload's: a new state and hook each time; None: the hook is not its own
    own: Callable[[], tuple[Any, Hook]] | None = None
    parameters: dict[int, list[torch.Tensor]] = field(default_factory=dict)  # of an own hook's, by bucket
    calls: Counter[int] = field(default_factory=Counter)  # of an own hook, by bucket: of 0 in each step

    def send(self, bucket: Any, group: dist.ProcessGroup) -> Any:
        """Begin to send a bucket; returns what can be waited for.

        Without a hook the sum is left undivided: DDP divides while it fills its buckets.
        """
        if self.hook is None:
            return dist.all_reduce(bucket.buffer(), group=group, async_op=True)
        return self.hook(self.state, bucket)


def wrap(
    module: nn.Module, team: Team, setting: Setting, device: Device, switch: HookSwitch | None = None
) -> DistributedDataParallel:
    """DDP over the team's data group, with its own all-reduce or the hook of ``switch``.

    A collective call; with ``switch`` nothing is sent when it is made, as the weights are another copy's:
    then the first steps of all ranks agree on the order of the buckets.
    """
    arguments = {name: getattr(setting, name) for name in FLAGS} | bucket_arguments(setting.bucket_cap_mb)
    arguments[SYNC_BUFFERS] = setting.broadcast_buffers and switch is None
    wrapper = DistributedDataParallel(
        module,
        device_ids=[device.torch_device] if device.torch_device.type == "cuda" else None,
        process_group=team.data,
        init_sync=switch is None,
        **arguments,
    )
    if switch is not None:
        wrapper.register_comm_hook(None, switch.hook)
        # what no hook is asked for: which parameters were not used
        switch.group = SilentGroup(team.data)
        wrapper.reducer._update_process_group(switch.group)
    return wrapper


def set_communication(
    wrapper: DistributedDataParallel, workload: Workload, setting: Setting, team: Team
) -> Communication:
    """Register the workload's own hook, or the one for the knob ``gradient_compression``."""
    make = getattr(workload, "communication_hook", None)
    if make is not None:

        def own() -> tuple[Any, Hook]:
            with default_group(team.data):
                return make(team.data)  # type: ignore[no-any-return]

        state, hook = own()
        communication = Communication(hook, state, own)
        wrapper.register_comm_hook(state, _recorded(communication))
        return communication
    communication = Communication(compression_hook(setting.gradient_compression), team.data)
    if communication.hook is not None:
        wrapper.register_comm_hook(communication.state, communication.hook)
    return communication


def _recorded(communication: Communication) -> Hook:
    """The hook, which leaves its calls and what its buckets are made of."""
    hook, calls = communication.hook, communication.calls
    assert hook is not None

    def recorded(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations kept as strings
        index = bucket.index()
        calls[index] += 1
        if calls[index] <= RECORDED_CALLS:
            communication.parameters[index] = bucket.parameters()
        return hook(state, bucket)

    return recorded


def bucket_arguments(cap: float | str) -> dict[str, Any]:
    """DDP's arguments for the knob ``bucket_cap_mb``.

    A list counts before the one size, so each resets the other where a script has it.
    """
    sizes = () if cap == "default" else bucket_sizes_mb(cap)
    several = {"bucket_cap_mb_list": list(sizes) if len(sizes) > 1 else None}
    return {
        "bucket_cap_mb": sizes[0] if len(sizes) == 1 else None,
        **{name: value for name, value in several.items() if name in _ARGUMENTS},
    }


Hook = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]


def compression_hook(name: str) -> Hook | None:
    """DDP's communication hook for the knob ``gradient_compression``; None: DDP's own all-reduce."""
    hooks: dict[str, Hook] = {
        "fp16": default_hooks.fp16_compress_hook,
        "bf16": default_hooks.bf16_compress_hook,
    }
    return hooks.get(name)


def no_transfer(_, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations kept as strings
    """A communication hook that sends nothing: buckets are filled, hooks run, nothing travels."""
    return _completed(bucket.buffer())


def _completed(value: Any) -> torch.futures.Future[Any]:
    future = torch.futures.Future[Any]()
    future.set_result(value)
    return future


class SilentGroup(dist.ProcessGroup):
    """The group of a DDP module that keeps its gradients; on the order of its buckets the ranks agree.

    Whoever hands it to a reducer keeps it: that has but the half of it in C++.
    """

    def __init__(self, real: dist.ProcessGroup) -> None:
        super().__init__(real.rank(), real.size())  # type: ignore[call-arg]
        self._real = real

    def allreduce(self, tensors: Any, options: Any = None) -> dist.Work:  # type: ignore[override]
        return _create_work_from_future(_completed(tensors))

    def broadcast(self, tensors: Any, options: Any = None) -> dist.Work:  # type: ignore[override]
        return self._real.broadcast(tensors, options)


class HookSwitch:
    """A communication hook that may be another one from step to step; at first it sends nothing."""

    def __init__(self) -> None:
        self.now: Hook = no_transfer
        self.group: SilentGroup | None = None  # of the module

        def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations kept as strings
            return self.now(state, bucket)

        self.hook: Hook = hook


def travelling_share(module: nn.Module, compression: str) -> float:
    """Bytes that travel over those of the gradients."""
    if compression == "none":  # whatever is frozen at the moment
        return 1.0
    # brings scipy, which a script's own process does not pay for
    from raybench.analysis.simulate.timeline import compressed_share

    trained = [each for each in module.parameters() if each.requires_grad]
    elements, own_bytes = sum(each.numel() for each in trained), sum(each.nbytes for each in trained)
    return compressed_share(compression, own_bytes / elements)


def gradient_bytes(module: nn.Module | None, compression: str) -> int | None:
    """Bytes that travel in a step; None where ``module`` is not DDP's."""
    if not isinstance(module, DistributedDataParallel):
        return None
    return round(sum(bucket_bytes(module)) * travelling_share(module, compression))


def bucket_bytes(module: nn.Module | None) -> tuple[int, ...]:
    """Sizes of the buckets that DDP really sends, in their order; empty where ``module`` is not DDP's."""
    if not isinstance(module, DistributedDataParallel):
        return ()
    data: dict[str, Any] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    text = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
    return tuple(int(size) for size in text.replace(",", " ").split())
