"""A device that behaves as a GPU does where that matters, on a CPU and gloo, with a workload that it hears.

Its memory is that of a fake allocator, asked through the very code that asks torch's. Its work is done later
than it is given: a step returns at once, and the device is busy for the time that the step is said to take.
Its counters are those of that work, as late and as coarse as a driver's.
"""

from __future__ import annotations

import time
import weakref
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
from tests.support.worker_rank import worker_rank
from tests.unit.worker.fake_cuda import GIB, FakeMemory

WRAPPED_W, BARE_W, IDLE_W = 300.0, 100.0, 10.0
SAMPLE_PERIOD_S, ENERGY_EVERY_S = 1 / 6, 0.1  # of the share of busy time, and of the counter of energy
PCIE = [f"nvmlDeviceGet{what}" for what in ("CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth")]
IDLE_MHZ, FAST_MHZ, HOT_MHZ = 345.0, 1980.0, 1500.0
HOT_AFTER_S = 0.05  # of work without a pause
HOTTER_EVERY_S = 1.0  # by 10 degrees
HOT = 0x40  # as NVML has it
COLD_AFTER_S, COLD_S = 0.05, 0.1  # of idling, and of work in which all takes twice the time after it


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
    """When a device will have done what it was given, and what it will have taken."""

    def __init__(self) -> None:
        self.done_at, self.began = 0.0, perf_counter()
        self.cools, self._cold_until = False, 0.0
        self.spans: list[tuple[float, float, float]] = []  # begin, end and watts of each piece

    def give(self, seconds: float, watts: float = 0.0) -> None:
        begin = max(self.done_at, perf_counter())
        if self.cools and begin - self.done_at > COLD_AFTER_S:
            self._cold_until = begin + COLD_S
        self.done_at = begin + (2 * seconds if begin < self._cold_until else seconds)
        self.spans.append((begin, self.done_at, watts))

    def busy_share(self, now: float) -> float:
        since = now - SAMPLE_PERIOD_S
        busy = sum(max(min(end, now) - max(begin, since), 0.0) for begin, end, _ in self.spans)
        return busy / SAMPLE_PERIOD_S

    def joules(self, now: float) -> float:
        at = now - now % ENERGY_EVERY_S
        above_idle = sum(
            (watts - IDLE_W) * max(min(end, at) - begin, 0.0) for begin, end, watts in self.spans
        )
        return IDLE_W * (at - self.began) + above_idle

    def without_a_pause_s(self, now: float) -> float | None:
        """For how long the device has worked by ``now``; None: it idles."""
        since: float | None = None
        for begin, end, _ in reversed(self.spans):
            if begin <= now and end >= (now if since is None else since):
                since = begin
            elif since is not None:
                break
        return None if since is None else now - since


class LateMoment:
    def __init__(self, work: LateWork) -> None:
        self.at = max(work.done_at, perf_counter())

    def query(self) -> bool:
        return perf_counter() >= self.at

    def synchronize(self) -> None:
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
        timed.synchronize()
        return np.diff([mark.at for mark in self._marks])


class GpuLike(CUDADevice):
    """NVML answers for the planted work; ``wrapped``: whether the last step was one under a strategy."""

    data_backend = "gloo"
    block_seconds = 0.02
    matrix_side = 64
    frees_waiting_ranks = True
    first_transfers: tuple[int, ...] = (1, 64)
    clock_ramp_s = 0.12

    def __init__(self, memory: FakeMemory) -> None:
        self.memory, self.work, self.seen = memory, LateWork(), Seen()
        self.wrapped, self.gib_per_byte, self.buckets_gib = False, 0.0, 0.0
        for name, fake in memory.functions().items():
            setattr(torch.cuda, name, fake)
        uuid = f"gpu of rank {dist.get_rank()}"
        torch.cuda.get_device_properties = lambda device: SimpleNamespace(uuid=uuid, name="GPU")  # type: ignore
        super().__init__(torch.device("cuda"))
        self.torch_device = torch.device("cpu")

    def synchronize(self, devices: Any = ()) -> None:
        self.moment().synchronize()

    def stopwatch(self) -> Any:
        return LateStopwatch(self)

    def moment(self) -> Any:
        return LateMoment(self.work)

    def fork_rng(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(devices=[])

    def host_waits(self, step: Any) -> dict[str, int] | None:
        step()
        return {"heard.py:7": 1}

    def _read(self, function: str, *arguments: Any) -> Any:
        now = perf_counter()
        works_s = self.work.without_a_pause_s(now)
        hot = works_s is not None and works_s > HOT_AFTER_S
        return {
            "nvmlDeviceGetPciInfo": None,
            "nvmlDeviceGetTemperature": 40 + 10 * (now - self.work.began) / HOTTER_EVERY_S,
            "nvmlDeviceGetClockInfo": IDLE_MHZ if works_s is None else HOT_MHZ if hot else FAST_MHZ,
            "nvmlDeviceGetCurrentClocksThrottleReasons": HOT if hot else 0,
            "nvmlDeviceGetTotalEnergyConsumption": 1000 * self.work.joules(now),
            **dict.fromkeys(PCIE, 4),
            "nvmlDeviceGetCurrPcieLinkGeneration": 1 if works_s is None else 4,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=100 * self.work.busy_share(now)),
        }[function]


GPU: list[GpuLike] = []  # this process's
GRADIENT_BYTES = 2 * (8 * 8 + 8) * 4  # of the model


def hold(owner: Any, gib: float) -> None:
    """The device has less memory by this much, as long as ``owner`` lives."""
    memory, size = GPU[0].memory, int(gib * GIB)
    memory.take(size)
    weakref.finalize(owner, memory.free, size)


class Kept:
    """What an optimizer has of its steps."""


class Weighty(nn.Sequential):
    """Takes memory where it is moved to a device, not where its weights are shared."""

    def __init__(self, gib: float) -> None:
        super().__init__(nn.Linear(8, 8), nn.Linear(8, 8))
        self.gib = gib

    def to(self, *arguments: Any, **named: Any) -> Any:
        if arguments and isinstance(arguments[0], torch.device):
            hold(self, self.gib)
        return super().to(*arguments, **named)


class Heard:
    """A linear layer whose steps take what they are said to take of the device in ``GPU``."""

    def __init__(
        self,
        gib_per_sample: float = 0.0,
        model_gib: float = 0.0,
        late_s: tuple[float, ...] = (),
        alone_s: float = 0.0,
        late_wrapped_s: float = 0.0,
        gradients_gib: float = 0.0,
        weights_gib: float = 0.0,
        state_gib: float = 0.0,
        wrapped_gib: float = 0.0,
        buckets_gib: float = 0.0,
        retries_on: tuple[int, ...] = (),
        cools: bool = False,
    ) -> None:
        """``late_s``: of a bare step on the device, by rank; ``alone_s``: on the CPU.

        ``gradients_gib``: what a whole set of gradients takes where the all-reduces are replayed;
        ``weights_gib``: a model on the device; ``state_gib``: what an optimizer keeps from its first step on;
        ``wrapped_gib``: more in a step under the strategy; ``buckets_gib``: a wrapper of DDP's;
        ``retries_on``: ranks whose allocator empties its cache in each of these steps. ``cools``: the device
        is slow after it has idled.
        """
        GPU[0].work.cools = cools
        self._retries = int(worker_rank() in retries_on)
        self._weights_gib, self._state_gib, self._wrapped_gib = weights_gib, state_gib, wrapped_gib
        self._gib, self._model_gib, self._alone_s = gib_per_sample, model_gib, alone_s
        self._late_s = late_s[worker_rank()] if late_s else 0.0
        self._late_wrapped_s = late_wrapped_s
        GPU[0].gib_per_byte, GPU[0].buckets_gib = gradients_gib / GRADIENT_BYTES, buckets_gib

    def model(self) -> nn.Module:
        GPU[0].seen.before_models.append(GPU[0].seen.all_reduces)
        return Weighty(self._weights_gib)

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        made = torch.optim.SGD(parameters, 0.01)
        first = made.param_groups[0]["params"][0]

        def keep(*_: Any) -> None:
            state = made.state[first]  # of now: optimizers may share one
            if "kept" not in state:
                state["kept"] = Kept()
                hold(state["kept"], self._state_gib)

        made.register_step_post_hook(keep)
        return made

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(size, 8, generator=generator)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        gpu, began = GPU[0], perf_counter()
        sharded = hasattr(model, "set_requires_gradient_sync")
        gpu.wrapped = sharded or isinstance(model, DistributedDataParallel)
        shards = dist.get_world_size() if sharded else 1
        wrapped_gib = self._wrapped_gib if gpu.wrapped else 0.0
        taken = int(GIB * (self._gib * len(batch) + self._model_gib / shards + wrapped_gib))
        gpu.memory.take(taken)
        loss: torch.Tensor = model(batch).square().mean()
        gpu.memory.free(taken)
        if gpu.wrapped:
            gpu.memory.retries += self._retries
            gpu.work.give(self._late_wrapped_s, WRAPPED_W)
        else:
            gpu.work.give(self._late_s, BARE_W)
            time.sleep(self._alone_s)
            gpu.seen.bare_steps.append((began, perf_counter()))
        return loss


def build(**arguments: Any) -> Heard:
    return Heard(**arguments)
