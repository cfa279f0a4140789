"""A workload that waits where others compute: gradients of planted sizes come at planted moments, on any
cores.

Real DDP and a real link carry real gradients; nothing but their copies needs a core, and these pass inside
the waits, so that what a link and a schedule do can be measured where cores are busy. A study names it as
``factory = "tests.support.waits:build"``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.support.worker_rank import worker_rank

FLOAT_BYTES = 4
NO_MACHINE_HAS = 2**60  # bytes


class _Pass:
    """A forward or backward pass: a wait in it ends when planted, however late the one before it ended."""

    def __init__(self) -> None:
        self._until = time.perf_counter()

    def wait(self, seconds: float) -> None:
        self._until += seconds
        time.sleep(max(0.0, self._until - time.perf_counter()))


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, value: torch.Tensor, weight: torch.Tensor, passes: list[_Pass], seconds: float
    ) -> torch.Tensor:
        passes[0].wait(seconds)
        context.save_for_backward(weight)
        context.passes, context.seconds = passes, 2 * seconds
        return value + weight[0]

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (weight,) = context.saved_tensors
        if len(context.passes) == 1:  # the last layer's, which comes first
            context.passes.append(_Pass())
        context.passes[1].wait(context.seconds)
        return gradients[0], torch.full_like(weight, 1e-3), None, None


class _Layers(nn.Module):
    """One parameter a layer, its forward and backward pass a wait for each sample and one for the layer."""

    def __init__(self, kib: Sequence[int], layer_s: float, sample_s: float) -> None:
        super().__init__()
        weights = (nn.Parameter(torch.zeros(size * 1024 // FLOAT_BYTES)) for size in kib)
        self.weights = nn.ParameterList(weights)
        self._layer_s, self._sample_s = layer_s, sample_s

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        forward_s = self._layer_s + self._sample_s * len(batch)
        value, passes = batch.sum(), [_Pass()]
        for weight in self.weights:
            value = _Wait.apply(value, weight, passes, forward_s)
        return value


class Waits:
    """Layers with so many KiB of gradient each; the backward pass waits twice as long as the forward one."""

    def __init__(
        self,
        kib: Sequence[int],
        layer_s: float,
        sample_s: float,
        shortage: str = "",
        straggler_s: float = 0.0,
        jitter_s: float = 0.0,
    ) -> None:
        self._kib, self._layer_s, self._sample_s = tuple(kib), layer_s, sample_s
        rank = worker_rank()
        self._straggler_s, self._jitter_s = straggler_s * (rank == 1), jitter_s
        self._random = random.Random(rank)
        self._shortage = Path(shortage) if shortage else None
        self._is_rank_1 = rank == 1

    def model(self) -> nn.Module:
        """A new one."""
        return _Layers(self._kib, self._layer_s, self._sample_s)

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        """Zeros."""
        return torch.zeros(size, 1)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """What the layers return; on rank 1 memory runs out where the file for that is there, once."""
        if self._shortage is not None and self._is_rank_1 and self._shortage.exists():
            self._shortage.unlink()
            torch.empty(NO_MACHINE_HAS, dtype=torch.uint8)
        time.sleep(self._straggler_s + self._random.expovariate(1) * self._jitter_s)
        loss: torch.Tensor = model(batch)
        return loss


def build(
    kib: Sequence[int] = (1024,) * 8,
    layer_s: float = 0.002,
    sample_s: float = 0.0,
    shortage: str = "",
    straggler_s: float = 0.0,
    jitter_s: float = 0.0,
) -> Waits:
    """The factory; ``layer_s`` and ``sample_s`` are of one layer's forward pass, in s.

    ``shortage``: a file; when it appears rank 1 deletes it and asks for more memory than there is.
    ``straggler_s``: what rank 1 waits longer in each step; ``jitter_s``: mean of exponential waits of all.
    """
    return Waits(kib, layer_s, sample_s, shortage, straggler_s, jitter_s)
