"""What a worker keeps between trials: operations counted, peaks measured, small models made."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import nn

from raybench.workloads.protocol import Workload

KEPT_MODEL_BYTES = 64 * 2**20  # making a larger one is little beside measuring it


@dataclass
class Kept:
    """Made once for a worker group, handed to every trial."""

    flops: dict[str, float] = field(default_factory=dict)  # of a step, by workload and batch
    sized: set[str] = field(default_factory=set)  # models that are known to have room for themselves
    # of each rank, by the team's ranks; looked at once, as a look at every process takes milliseconds
    memory_limits: dict[tuple[int, ...], tuple[int, ...] | None] = field(default_factory=dict)
    matrix_peaks: dict[str, float] = field(default_factory=dict)  # FLOP/s, by precision and threads
    _models: dict[str, nn.Module] = field(default_factory=dict)  # as they came from the workload

    @property
    def has_model(self) -> bool:
        """Whether a model is kept, which is then a small one."""
        return bool(self._models)

    def model(self, workload: Workload, key: str, seed: int) -> nn.Module:
        """A new model on the CPU: what ``workload.model()`` gives after seeding, or a copy of that.

        ``key`` tells workloads apart. Only small models are kept, one at a time.
        """
        key = f"{key} {seed}"
        kept = self._models.get(key)
        if kept is not None:
            return copy.deepcopy(kept)
        torch.manual_seed(seed)
        made = workload.model()
        size = sum(tensor.nbytes for tensor in (*made.parameters(), *made.buffers()))
        if size <= KEPT_MODEL_BYTES:
            try:
                self._models = {key: copy.deepcopy(made)}
            except Exception:  # not every module can be copied: then it is made anew for each trial
                self._models = {}
        return made
