"""A workload that fails in the way that its batch size says."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.support.worker_rank import num_workers, worker_rank

FINE, KILLED, HUNG, OUT_OF_MEMORY, ALL_OUT_OF_MEMORY, RAISES, NOT_FINITE = 8, 16, 24, 32, 40, 48, 56
LEAVES, NEVER_MADE, FLOODS = 64, 72, 80  # without its process group; a model after that one; prints
FLOOD = "flood " * 20_000  # of each step, on every rank


class Faulty:
    def __init__(self, seconds: float = 0.0, mark: str = "") -> None:
        self._calls, self._seconds = 0, seconds
        self._mark = Path(mark) if mark else None
        self._is_rank_1 = worker_rank() == 1

    def model(self) -> nn.Module:
        if self._mark is not None and self._is_rank_1 and self._mark.exists():
            self._mark.unlink()  # what is in the next trial's way was left there by the one before
            while True:
                pass
        return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(size, 16, generator=generator)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        time.sleep(self._seconds)
        self._fail(len(batch), self._is_rank_1)
        loss: torch.Tensor = model(batch).square().mean()
        return loss * float("nan") if len(batch) == NOT_FINITE else loss

    def _fail(self, size: int, is_rank_1: bool) -> None:
        late = self._calls > 40
        if size == KILLED and late and is_rank_1:
            os.kill(os.getpid(), signal.SIGKILL)
        if size == HUNG and late and is_rank_1:
            while True:  # holds on to Python, where a wait would let go of it
                pass
        if size == OUT_OF_MEMORY and is_rank_1:
            raise MemoryError("planted")
        if size == ALL_OUT_OF_MEMORY:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")
        if size == RAISES and late and is_rank_1:
            raise ValueError("planted in the user's model")
        if size == LEAVES and late:
            if self._mark is not None:
                self._mark.touch()
            dist.destroy_process_group()
        if size == FLOODS:
            print(FLOOD)
            print(FLOOD, file=sys.stderr)


def build(**arguments: Any) -> Faulty:
    return Faulty(**arguments)


class Ending:
    """Planted waits in a group that ends as NCCL's must: a rank that fails cannot free those that wait.

    Batch sizes end in the number of ranks that run out of memory in a synchronised step; 0: none.
    """

    SECONDS_PER_SAMPLE = 1e-4

    def __init__(self) -> None:
        from raybench.worker.devices.device import Device

        Device.frees_waiting_ranks = False
        self._calls, self._rank, self._size = 0, worker_rank(), num_workers()

    def model(self) -> nn.Module:
        return nn.Linear(16, 4)

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(size, 16, generator=generator)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        size = len(batch)
        time.sleep(size * self.SECONDS_PER_SAMPLE)
        self._calls += isinstance(model, DistributedDataParallel)
        if self._calls > 6 and self._rank >= self._size - size % 10:
            raise MemoryError("planted")
        loss: torch.Tensor = model(batch).square().mean()
        return loss


def build_ending() -> Ending:
    return Ending()
