"""A workload with a planted appetite: so much memory for each sample, and no more than so many samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.support.worker_rank import worker_rank

MIB = 2**20


class Hungry:
    """Linear regression that holds ``mib`` MiB for each sample of a forward pass."""

    def __init__(self, mib: float = 0.0, most: int = 10**9, ranks: tuple[int, ...] = (), width: int = 16):
        self._mib, self._most, self._width = mib, most, width
        self._is_here = worker_rank() in ranks

    def model(self) -> nn.Module:
        return nn.Linear(self._width, self._width)

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(size, self._width, generator=generator)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        if len(batch) > self._most and self._is_here:
            raise MemoryError(f"planted above {self._most}")
        held = torch.ones(len(batch), int(self._mib * MIB / 4))  # written to, so that it is really there
        loss: torch.Tensor = model(batch).square().mean()
        return loss if held.numel() == 0 else loss * held[0, 0]


def build(**arguments: Any) -> Hungry:
    return Hungry(**arguments)
