"""FSDP: fully_shard over a team's data group, block by block.

torch.distributed.fsdp takes a second to import, so this module does so where it shards.

``precision`` under FSDP: parameters, gradients' reduction and the optimizer stay in fp32, as the contract
has it. Autocast's cast of the weights becomes FSDP's own (``MixedPrecisionPolicy``): gathered copies and
activations are bf16 or fp16, so half the bytes are gathered; what the model returns is fp32 again. A model
with batch normalisation keeps autocast over gathered fp32 copies: its statistics are fp32 buffers, which
torch does not mix with weights of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from raybench.spec.knobs import Setting
from raybench.worker.communicators import COALESCED_BYTES, Team
from raybench.worker.strategies.stepper import AUTOCAST
from raybench.worker.strategies.transforms import compile_forward, repeated_blocks


def shard(module: nn.Module, team: Team, setting: Setting, device: torch.device) -> bool:
    """Shard ``module``, which is on the CPU, onto the team's devices; whether it still needs autocast.

    The leader's weights count. One block at a time is whole on the device. A collective call.
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    whole = [tensor.data for tensor in (*module.parameters(), *module.buffers())]
    dist._broadcast_coalesced(team.control, whole, COALESCED_BYTES, 0)  # type: ignore[attr-defined]
    dtype = None if has_batch_norm(module) else AUTOCAST.get(setting.precision)
    full = torch.float32 if dtype else None
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=full)
    _forget_meshes()
    mesh = DeviceMesh.from_group(team.data, device.type)
    reshard = setting.fsdp_reshard
    blocks = [block for block in repeated_blocks(module) if block is not module]
    if setting.compile:
        for block in blocks or [module]:
            compile_forward(block)
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    outer = replace(policy, output_dtype=full)
    fully_shard(module, mesh=mesh, reshard_after_forward=reshard, mp_policy=outer)
    return dtype is None


def _forget_meshes() -> None:
    """What DTensor keeps of operations, by the shape of a mesh, has the mesh in it: its group may be gone."""
    from torch.distributed.tensor import debug

    debug._clear_sharding_prop_cache()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Message:
    """One of FSDP's collectives: weights that are gathered, or gradients that are reduced and scattered."""

    gathers: bool
    elements: int  # of all ranks together
    dtype: torch.dtype
    operation: Any = None  # by which gradients are reduced

    @property
    def bytes(self) -> int:
        """As nccl-tests counts it: of a gather the output, of a scatter the input."""
        return self.elements * self.dtype.itemsize


class Collectives:
    """FSDP's own in every part of a sharded module: what a step sends, and a switch that leaves it out."""

    def __init__(self, module: nn.Module) -> None:
        from torch.distributed.fsdp import FSDPModule
        from torch.distributed.fsdp._fully_shard import _fsdp_collectives as torchs

        self._parts = [part for part in module.modules() if isinstance(part, FSDPModule)]
        self._gather, self._scatter = torchs.DefaultAllGather(), torchs.DefaultReduceScatter()

    def leave_out(self) -> None:
        """Send nothing from now on: a rank computes with its own shard in place of the others'.

        The same memory is taken and written. Gradients come back as zeros, so that what these steps compute
        with weights that nobody has leaves the real ones where they are, but for the optimizer's momentum
        and decay.
        """
        self._take(_Exchange(_own_shard_everywhere), _Exchange(_no_gradient))

    def put_back(self) -> None:
        """Send again."""
        self._take(self._gather, self._scatter)

    def messages_of(self, step: Callable[[], None]) -> tuple[Message, ...]:
        """What ``step`` sends, in its order. A collective call."""
        messages = list[Message]()

        def gather(output_tensor: torch.Tensor, input_tensor: torch.Tensor, **how: Any) -> Any:
            messages.append(Message(True, output_tensor.numel(), output_tensor.dtype))
            return self._gather(output_tensor, input_tensor, **how)

        def scatter(output_tensor: torch.Tensor, input_tensor: torch.Tensor, **how: Any) -> Any:
            messages.append(Message(False, input_tensor.numel(), input_tensor.dtype, how["op"]))
            return self._scatter(output_tensor, input_tensor, **how)

        self._take(_Exchange(gather), _Exchange(scatter))
        try:
            step()
        finally:
            self.put_back()
        return tuple(messages)

    def send(self, message: Message, whole: torch.Tensor, team: Team) -> None:
        """Send ``message`` as a step does; ``whole`` has its elements, of which this rank's are a part."""
        part = whole.view(team.size, -1)[team.rank]
        if message.gathers:
            self._gather(whole, part, group=team.data)
        else:
            self._scatter(torch.empty_like(part), whole, group=team.data, op=message.operation)

    def _take(self, gather: Any, scatter: Any) -> None:
        for part in self._parts:
            part.set_custom_all_gather(gather)
            part.set_custom_reduce_scatter(scatter)


class _Exchange:
    """What FSDP calls in place of a collective, on memory as its own collectives have it."""

    def __init__(self, exchange: Callable[..., Any]) -> None:
        self._exchange = exchange

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, **how: Any) -> Any:
        return self._exchange(output_tensor, input_tensor, **how)


def _own_shard_everywhere(output_tensor: torch.Tensor, input_tensor: torch.Tensor, **_: Any) -> None:
    # its own place FSDP has filled already
    places = output_tensor.view(-1, input_tensor.numel()).unbind()
    others = [place for place in places if place.data_ptr() != input_tensor.data_ptr()]
    torch._foreach_copy_(others, [input_tensor] * len(others))


def _no_gradient(output_tensor: torch.Tensor, input_tensor: torch.Tensor, **_: Any) -> None:
    output_tensor.zero_()


def release_group(module: nn.Module) -> None:
    """Undo torch's hold on the sharded module's group: a rank that waits in it is freed when it closes.

    DTensor's caches keep meshes for ever, a mesh keeps its group, and an equal mesh of a later group would
    be answered with the old one's.
    """
    for parameter in module.parameters():
        groups = getattr(getattr(parameter, "device_mesh", None), "_pg_registry", None)
        if groups:
            groups.clear()
    _forget_meshes()


def has_batch_norm(module: nn.Module) -> bool:
    """Whether a layer keeps running statistics of batches."""
    return any(isinstance(layer, _BatchNorm) for layer in module.modules())


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Give ``target``, sharded or not, the weights and buffers of ``source``: the same model, whole."""
    with torch.no_grad():
        sources = (*source.parameters(), *source.buffers())
        for whole, part in zip(sources, (*target.parameters(), *target.buffers()), strict=True):
            part.copy_(placed_as(part, whole.detach()))


def gathered(state: Any, *, keep: bool) -> Any:
    """A state_dict, or a part of one, with every sharded tensor whole and on the CPU.

    Where not ``keep``, None replaces those. A collective call if any is sharded.
    """
    if is_sharded(state):
        whole = state.full_tensor()
        return whole.cpu() if keep else None
    if isinstance(state, dict):
        return {name: gathered(value, keep=keep) for name, value in state.items()}
    if isinstance(state, list):
        return [gathered(value, keep=keep) for value in state]
    return state


def placed_as(part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """``whole`` on ``part``'s device, sharded as ``part`` is. A collective call if it is.

    The first rank's values count: elsewhere a tensor of the shape alone will do.
    """
    placed = torch.empty_like(whole, device=part.device) if whole.is_meta else whole.to(part.device)
    if not is_sharded(part):
        return placed
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(part, DTensor)
    return distribute_tensor(placed, part.device_mesh, part.placements)


def is_sharded(value: Any) -> bool:
    """Whether it is a DTensor, without the second that importing DTensor takes."""
    return isinstance(value, torch.Tensor) and hasattr(value, "full_tensor")
