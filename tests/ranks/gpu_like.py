"""A device that behaves as a GPU does where that matters, on a CPU and gloo, with a workload that it hears.

Its memory is that of a fake allocator, asked through the very code that asks torch's. Its work is done later
than it is given: a step returns at once, and the device is busy for the time that the step is said to take.
Its counters say one thing while the model runs under its strategy, another while the bare one does.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from time import perf_counter  # CLOCK_MONOTONIC on Linux: the same in every process
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from raybench.worker.devices.cuda import CUDADevice
from tests.unit.worker.fake_cuda import GIB, FakeMemory

WRAPPED_JOULES, BARE_JOULES = 3.0, 1.0


@dataclass(frozen=True)
class SeenBlock:
    """Moments of a block, in s."""

    bare: bool
    timed_done: float  # the last timed step, on the device
    left: float  # when the rank gave it no more
    all_done: float  # what the device had been given until then


@dataclass
class Seen:
    """What happened in this process."""

    bare_steps: list[tuple[float, float]] = field(default_factory=list)  # begin and end, in s
    broadcasts: list[float] = field(default_factory=list)  # when this rank was ready for one
    all_reduces: int = 0
    before_models: list[int] = field(default_factory=list)  # all-reduces before each model was made
    blocks: list[SeenBlock] = field(default_factory=list)


class LateWork:
    """When a device will have done what it was given."""

    def __init__(self) -> None:
        self.done_at = 0.0

    def give(self, seconds: float) -> None:
        self.done_at = max(self.done_at, perf_counter()) + seconds


class LateMoment:
    def __init__(self, work: LateWork) -> None:
        self.at = max(work.done_at, perf_counter())

    def passed(self) -> bool:
        return perf_counter() >= self.at

    def wait(self) -> None:
        time.sleep(max(self.at - perf_counter(), 0.0))


class LateStopwatch:
    def __init__(self, gpu: GpuLike) -> None:
        self._gpu, self._marks = gpu, list[LateMoment]()

    def start(self) -> None:
        self._marks = []
        self.lap()

    def lap(self) -> None:
        self._marks.append(self._gpu.moment())

    def read(self) -> NDArray[np.float64]:
        gpu, timed = self._gpu, self._marks[-1]
        gpu.seen.blocks.append(SeenBlock(not gpu.wrapped, timed.at, perf_counter(), gpu.work.done_at))
        timed.wait()
        return np.diff([mark.at for mark in self._marks])


class GpuLike(CUDADevice):
    """Every counter is planted; ``wrapped`` says whether the last step was one under a strategy."""

    data_backend = "gloo"
    block_seconds = 0.02
    matrix_side = 64
    frees_waiting_ranks = True
    first_transfers: tuple[int, ...] = (1, 64)

    def __init__(self, memory: FakeMemory) -> None:
        self.memory, self.work, self.seen = memory, LateWork(), Seen()
        self.wrapped, self.joules = False, 0.0
        for name, fake in memory.functions().items():
            setattr(torch.cuda, name, fake)
        uuid = f"gpu of rank {dist.get_rank()}"
        torch.cuda.get_device_properties = lambda device: SimpleNamespace(uuid=uuid)  # type: ignore
        super().__init__(torch.device("cuda"))
        self.torch_device, self.ddp_device_ids = torch.device("cpu"), None

    def synchronize(self) -> None:
        self.moment().wait()

    def stopwatch(self) -> Any:
        return LateStopwatch(self)

    def moment(self) -> Any:
        return LateMoment(self.work)

    def fork_rng(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(devices=[])

    def clock_mhz(self) -> float:
        return 1500.0 if self.wrapped else 345.0

    def throttled(self) -> bool:
        return self.wrapped

    def utilization(self) -> float:
        return 0.9 if self.wrapped else 0.1

    def energy_joules(self) -> float:
        return self.joules


GPU: list[GpuLike] = []  # this process's


class Heard:
    """A linear layer whose steps take what they are said to take of the device in ``GPU``."""

    def __init__(
        self,
        gib_per_sample: float = 0.0,
        model_gib: float = 0.0,
        late_s: tuple[float, ...] = (),
        alone_s: float = 0.0,
    ) -> None:
        """``late_s``: of a bare step on the device, by rank; ``alone_s``: on the CPU."""
        self._gib, self._model_gib, self._alone_s = gib_per_sample, model_gib, alone_s
        self._late_s = late_s[dist.get_rank()] if late_s else 0.0

    def model(self) -> nn.Module:
        GPU[0].seen.before_models.append(GPU[0].seen.all_reduces)
        return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(size, 8, generator=generator)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        gpu, began = GPU[0], perf_counter()
        sharded = hasattr(model, "set_requires_gradient_sync")
        gpu.wrapped = sharded or isinstance(model, DistributedDataParallel)
        shards = dist.get_world_size() if sharded else 1
        taken = int(GIB * (self._gib * len(batch) + self._model_gib / shards))
        gpu.memory.take(taken)
        loss: torch.Tensor = model(batch).square().mean()
        gpu.memory.free(taken)
        gpu.joules += WRAPPED_JOULES if gpu.wrapped else BARE_JOULES
        if not gpu.wrapped:
            gpu.work.give(self._late_s)
            time.sleep(self._alone_s)
            gpu.seen.bare_steps.append((began, perf_counter()))
        return loss


def build(**arguments: Any) -> Heard:
    return Heard(**arguments)
