"""What a worker group keeps from one trial to the next: operations counted, peaks measured, small models."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import nn

from raybench.records.requests import Configuration
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.workloads.protocol import Workload

CACHED_MODEL_BYTES = 64 * 2**20  # making a larger one takes little compared with measuring it


@dataclass
class GroupCache:
    """Made once for a worker group, handed to every trial."""

    flops: dict[str, float] = field(default_factory=dict)  # of a step, by workload and batch
    fitting_models: set[str] = field(default_factory=set)  # known to fit in the memory of a rank
    stepped: set[str] = field(default_factory=set)  # workloads of which this rank has run a step
    # of each rank, by the team's ranks; looked at once, as a look at every process takes milliseconds
    memory_limits: dict[tuple[int, ...], tuple[int, ...] | None] = field(default_factory=dict)
    matrix_peaks: dict[str, float] = field(default_factory=dict)  # FLOP/s, by precision and threads
    _models: dict[str, nn.Module] = field(default_factory=dict)  # as they came from the workload

    def model(self, workload: Workload, config: Configuration) -> nn.Module:
        """A new model on the CPU: what ``workload.model()`` gives after seeding, or a copy of that.

        Only small models are cached, one at a time.
        """
        key = f"{config.workload.model_dump_json()} {config.seed}"
        if key in self._models:
            return copy.deepcopy(self._models[key])
        torch.manual_seed(config.seed)
        model = workload.model()
        size = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
        if size <= CACHED_MODEL_BYTES:
            try:
                self._models = {key: copy.deepcopy(model)}
            except Exception:  # not every module can be copied: then it is made again for each trial
                self._models = {}
        return model


@dataclass(frozen=True)
class RankContext:
    """What a trial works with on one rank."""

    team: Team
    device: Device
    cache: GroupCache
