"""FSDP: fully_shard over a team's data group, block by block.

torch.distributed.fsdp takes a second to import, so this module does so where it shards.

``precision`` under FSDP: parameters, gradients' reduction and the optimizer stay in fp32, as the contract
has it. Autocast's cast of the weights becomes FSDP's own (``MixedPrecisionPolicy``): gathered copies and
activations are bf16 or fp16, so half the bytes are gathered; what the model returns is fp32 again. A model
with batch normalisation keeps autocast over gathered fp32 copies: its statistics are fp32 buffers, which
torch does not mix with weights of another type.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from raybench.spec.knobs import Setting
from raybench.worker.blocks import repeated_blocks
from raybench.worker.communication import COALESCED_BYTES, Team
from raybench.worker.compiling import compile_forward
from raybench.worker.lanes import AUTOCAST


def shard(module: nn.Module, team: Team, setting: Setting, device: torch.device) -> bool:
    """Shard ``module``, which is on the CPU, onto the team's devices; whether it still needs autocast.

    The leader's weights count. One block at a time is whole on the device. A collective call.
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    whole = [tensor.data for tensor in (*module.parameters(), *module.buffers())]
    dist._broadcast_coalesced(team.control, whole, COALESCED_BYTES, 0)  # type: ignore[attr-defined]
    kind = None if has_batch_norm(module) else AUTOCAST.get(setting.precision)
    policy = MixedPrecisionPolicy()
    if kind:
        policy = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32)
    mesh = DeviceMesh.from_group(team.data, device.type)
    reshard = setting.fsdp_reshard
    blocks = [block for block in repeated_blocks(module) if block is not module]
    if setting.compile:
        for block in blocks or [module]:
            compile_forward(block)
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    outer = replace(policy, output_dtype=torch.float32) if kind else policy
    fully_shard(module, mesh=mesh, reshard_after_forward=reshard, mp_policy=outer)
    return kind is None


def let_go(module: nn.Module) -> None:
    """Undo torch's hold on the sharded module's group: whoever waits in it is freed when it closes.

    DTensor's caches keep meshes for ever, a mesh keeps its group, and an equal mesh of a later group would
    be answered with the old one's.
    """
    from torch.distributed.tensor import debug

    for parameter in module.parameters():
        groups = getattr(getattr(parameter, "device_mesh", None), "_pg_registry", None)
        if groups:
            groups.clear()
    clear_caches = getattr(debug, "_clear_sharding_prop_cache", None)
    if clear_caches is not None:
        clear_caches()


def has_batch_norm(module: nn.Module) -> bool:
    """Whether a layer keeps running statistics of batches."""
    return any(isinstance(each, _BatchNorm) for each in module.modules())


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Give ``target``, sharded or not, the weights and buffers of ``source``: the same model, whole."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    pairs = zip(
        (*source.parameters(), *source.buffers()), (*target.parameters(), *target.buffers()), strict=True
    )
    with torch.no_grad():
        for whole, part in pairs:
            if isinstance(part, DTensor):
                placed = whole.detach().to(part.device)
                mine = distribute_tensor(placed, part.device_mesh, part.placements)
                part.to_local().copy_(mine.to_local())
            else:
                part.copy_(whole)
