"""The memory of the ranks of a trial: what each may take, and whether the model fits into it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch

from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.spec.plural import bytes_words
from raybench.spec.study import OptimizerSpec
from raybench.worker.devices.device import AvailableMemory, Device
from raybench.worker.group_cache import RankContext
from raybench.workloads.protocol import Workload, model_without_storage


def memory_limits_of_ranks(context: RankContext, *, again: bool = False) -> tuple[int, ...] | None:
    """The bytes that each rank may take; what an earlier trial found, unless ``again``.

    None where a rank does not know. A collective call.
    """
    known, ranks = context.cache.memory_limits, context.team.ranks
    if again or ranks not in known:
        known[ranks] = memory_limits(context.team.gather(context.device.available_memory()))
    return known[ranks]


def memory_limits(ranks: Sequence[AvailableMemory | None]) -> tuple[int, ...] | None:
    """The bytes that each rank may take: what it has, and an equal share of what its place has left."""
    known, limits = all_known(ranks), []
    if known is None:
        return None
    for rank in known:
        neighbours = [other.left_bytes for other in known if other.place == rank.place]
        limits.append(rank.taken_bytes + min(neighbours) // len(neighbours))
    return tuple(limits)


def allocator_retries(device: Device) -> int:
    """How often torch's allocator found this rank's GPU full so far, and emptied its cache; 0 on CPUs."""
    stats = torch.cuda.memory_stats(device.torch_device) if device.kind == "cuda" else {}
    return int(stats.get("num_alloc_retries", 0))


def all_known(values: Iterable[Known | None]) -> tuple[Known, ...] | None:
    """The values, where every rank has one."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return tuple(known) if len(known) == len(listed) else None


Known = TypeVar("Known")


def check_model_fits(config: Configuration, workload: Workload, context: RankContext) -> None:
    """``refuse_too_large`` by the limits that are known, once for each model of a worker group.

    A CPU gives memory that it has not, and the system kills a process that uses it.
    """
    team, cache, setting, world_size = context.team, context.cache, config.setting, config.world_size
    limits = cache.memory_limits.get(team.ranks)
    model, optimizer = config.workload.model_dump_json(), config.optimizer.model_dump_json()
    key = f"{model} {optimizer} {setting.strategy} {world_size}"
    if limits is None or key in cache.fitting_models:
        return
    refuse_too_large(workload, config.optimizer, setting, world_size, limits[team.rank])
    cache.fitting_models.add(key)


def refuse_too_large(
    workload: Workload, optimizer: OptimizerSpec, setting: Setting, world_size: int, limit_bytes: int
) -> None:
    """Raise ``MemoryError`` with the numbers where weights, gradients and optimizer alone exceed the memory.

    The model is made without storage for it; one that cannot be made so is taken to fit. FSDP spreads what
    is counted over the ranks. What a workload's own optimizer keeps is unknown, and not counted.
    """
    model = model_without_storage(workload)
    if model is None:
        return
    parameters = list(model.parameters())
    weights = sum(tensor.nbytes for tensor in (*parameters, *model.buffers()))
    gradients = sum(tensor.nbytes for tensor in parameters if tensor.requires_grad)
    states = 0
    if getattr(workload, "optimizer", None) is None:
        states = gradients * (2 if optimizer.name != "sgd" else int(optimizer.momentum > 0))
    shards = world_size if setting.strategy == "fsdp" else 1
    needed = (weights + gradients + states) // shards
    if needed > limit_bytes:
        parts = ", ".join(
            f"{name} {bytes_words(size / shards)}"
            for name, size in (("weights", weights), ("gradients", gradients), ("optimizer", states))
        )
        raise MemoryError(
            f"the model alone needs {bytes_words(needed)} ({parts}), a rank has {bytes_words(limit_bytes)}"
        )
