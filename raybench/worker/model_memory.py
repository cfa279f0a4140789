"""Is there memory for the model? What each rank may take; too large a model is refused before it is made."""

from __future__ import annotations

import copy

import torch

from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec
from raybench.worker.cache import Kept
from raybench.worker.communicators import Team
from raybench.worker.devices.probe import DeviceProbe, memory_limits
from raybench.workloads.protocol import Workload

GIBIBYTE = 2**30


def limits_of_ranks(
    team: Team, kept: Kept, probe: DeviceProbe, *, anew: bool = False
) -> tuple[int, ...] | None:
    """The memory that each rank may take; what an earlier trial found, unless it is asked ``anew``.

    None where a rank cannot tell. A collective call.
    """
    known, ranks = kept.memory_limits, team.ranks
    if anew or ranks not in known:
        known[ranks] = memory_limits(team.gather(probe.memory_room()))
    return known[ranks]


def refuse_without_room(config: Configuration, workload: Workload, team: Team, kept: Kept) -> None:
    """``refuse_too_large`` by the limits that are known, once for each model of a worker group.

    A CPU gives memory that it has not, and the system kills whoever uses it.
    """
    limits, setting, world_size = kept.memory_limits.get(team.ranks), config.setting, config.world_size
    model, optimizer = config.workload.model_dump_json(), config.optimizer.model_dump_json()
    key = f"{model} {optimizer} {setting.strategy} {world_size}"
    if limits is None or key in kept.sized:
        return
    refuse_too_large(workload, config.optimizer, setting, world_size, limits[team.rank])
    kept.sized.add(key)


def refuse_too_large(
    workload: Workload, optimizer: OptimizerSpec, setting: Setting, world_size: int, limit_bytes: int
) -> None:
    """Raise ``MemoryError`` with the numbers where weights, gradients and optimizer alone exceed the memory.

    The model is made without storage for it; one that cannot be made so is not judged. FSDP spreads what is
    counted over the ranks. What a workload's own optimizer keeps is unknown, and not counted.
    """
    try:
        with torch.device("meta"):
            model = copy.copy(workload).model()  # a copy: what the workload keeps must not be without storage
    except Exception:
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
        words = ", ".join(
            f"{name} {size / shards / GIBIBYTE:,.2f}"
            for name, size in (("weights", weights), ("gradients", gradients), ("optimizer", states))
        )
        raise MemoryError(
            f"the model alone needs {needed / GIBIBYTE:,.2f} GiB ({words}), "
            f"a rank has {limit_bytes / GIBIBYTE:,.2f} GiB"
        )
