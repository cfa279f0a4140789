"""Workloads whose truth is known: waits of a known length, or faults at a known moment.

Every wait ends at a moment fixed beforehand: the forward pass at the step's begin plus its length, each
layer's backward pass its own length later, a transfer its length after the last rank was ready and the link
free. What Python, DDP and the small real all-reduce cost meanwhile passes inside the waits, and a wait that
ends late does not delay the next. Nothing needs a core but the last 0.3 ms of a wait.
"""

from __future__ import annotations

import math
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter  # CLOCK_MONOTONIC on Linux: the same in every process
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Team
from tests.support.worker_rank import num_workers, worker_rank

SPIN_S = 0.0003  # before the deadline: a sleep is not exact
STAMP_EVERY_S = 0.003
ACTIVE_S = 0.015  # whoever stamped within this time is at work
MAX_RANKS = 8


@dataclass(frozen=True)
class Plant:
    """What is planted, in s."""

    forward_s: float = 0.008
    per_sample_s: float = 0.0  # of the forward pass
    forward_by_batch_s: tuple[tuple[int, float], ...] = ()  # instead of the two above
    backward_s: tuple[float, ...] = (0.004, 0.004, 0.004)  # layer by layer, as the backward pass meets them
    contention_s: float = 0.0  # in the forward pass, while another rank is at work
    wrapper_s: float = 0.0  # in the forward pass, under DDP
    straggler_s: float = 0.0  # in the forward pass, on ``straggler_rank``
    straggler_rank: int = 0
    jitter_s: float = 0.0  # in the forward pass, on one rank in each step, which the ranks take in turn
    link_s: float = 0.0  # each bucket on the serial link; 0: DDP's own all-reduce

    def spec(self, stamps: str) -> FactorySpec:
        """The workload as a study would name it; ``stamps`` is a file of zeros, shared by the ranks."""
        return FactorySpec.model_validate(
            {"factory": "tests.ranks.planted:build", "stamps": stamps} | asdict(self)
        )

    def forward(self, batch: int) -> float:
        """The forward pass of one rank alone."""
        table = dict(self.forward_by_batch_s)
        return table[batch] if table else self.forward_s + self.per_sample_s * batch

    def alone(self, batch: int) -> float:
        """The step of a rank alone that is neither straggler nor late."""
        return self.forward(batch) + sum(self.backward_s)

    def exposed(self) -> float:
        """From the end of the slowest backward pass to the end of the last transfer, in closed form."""
        ready = free = 0.0
        for backward_s in self.backward_s:
            ready += backward_s
            free = max(ready, free) + self.link_s
        return free - ready if self.link_s else 0.0

    def replay(self) -> float:
        """All transfers, one after the other."""
        return self.link_s * len(self.backward_s)

    def parts(self, world_size: int, batch: int) -> dict[str, float]:
        """The waterfall of weak scaling, over steps in which every rank is late as often as the others."""
        n, late = world_size, self.straggler_s + self.jitter_s
        return {
            "ideal": self.alone(batch) + late / n,  # plain rotates over the ranks
            "contention": self.contention_s,
            "wrapper": self.wrapper_s,
            # in one step of n the slowest is late by both, else by the larger of the two
            "skew": max(self.straggler_s, self.jitter_s) * (1 - 1 / n),
            "exposed_communication": self.exposed(),
        }


class _Clock:
    """What the waits of one process share: where it is in its step, and when the others were last seen."""

    def __init__(self) -> None:
        self.block, self.step = 0, 0  # counted from Team.barrier, so that all ranks draw alike
        self.begin, self.deadline = 0.0, 0.0  # of the step; its planted end so far, without transfers
        self.stamps: Any = np.zeros(MAX_RANKS)
        self.rank = 0
        self.free_at = 0.0  # the planted end of the last transfer
        self.kind, self.real = "", 0  # the variant of the step, and the id of the module under DDP that sends
        # by variant, block and step: how long the step took, to the next one's begin, and how much of that
        # came after its planted end
        self.step_s: dict[str, dict[tuple[int, int], float]] = {}
        self.own_s: dict[str, dict[tuple[int, int], float]] = {}

    def next_step(self, kind: str) -> float:
        """Begin a step of ``kind``, which ends the one before it in the same block."""
        now = perf_counter()
        if self.step:
            place = (self.block, self.step)
            self.step_s.setdefault(self.kind, {})[place] = now - self.begin
            self.own_s.setdefault(self.kind, {})[place] = now - max(self.deadline, self.free_at)
        self.kind, self.step, self.begin = kind, self.step + 1, now
        return now

    def stamp(self) -> None:
        self.stamps[self.rank] = perf_counter()

    def others_at_work(self) -> bool:
        others = np.delete(np.asarray(self.stamps), self.rank)
        return bool((perf_counter() - others < ACTIVE_S).any())

    def wait_until(self, deadline: float) -> None:
        while (left := deadline - perf_counter()) > SPIN_S:
            self.stamp()
            time.sleep(min(left - SPIN_S, STAMP_EVERY_S))
        while perf_counter() < deadline:
            pass
        self.stamp()


CLOCK = _Clock()


@contextmanager
def blocks_aligned() -> Iterator[None]:
    """Inside, steps count from the barrier with which each block begins: a rank's own count is its own."""
    original = Team.barrier

    def barrier(self: Team) -> None:
        original(self)
        CLOCK.block, CLOCK.step = CLOCK.block + 1, 0

    Team.barrier = barrier  # type: ignore[method-assign]
    try:
        yield
    finally:
        Team.barrier = original  # type: ignore[method-assign]


class _WaitInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor, seconds: float) -> Any:
        ctx.save_for_backward(weight)
        ctx.seconds = seconds
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        CLOCK.deadline += ctx.seconds
        CLOCK.wait_until(CLOCK.deadline)
        return gradients[0], torch.zeros_like(ctx.saved_tensors[0]), None


class _Layer(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(256))
        self.seconds = seconds

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        waited: torch.Tensor = _WaitInBackward.apply(values, self.weight, self.seconds)
        return waited


class Planted:
    """Waits, and a model of as many parameters as there are waits in the backward pass."""

    def __init__(self, plant: Plant, stamps: str) -> None:
        self._plant = plant
        CLOCK.rank, self._size = worker_rank(), num_workers()
        CLOCK.stamps = np.memmap(stamps, dtype=np.float64, mode="r+", shape=(MAX_RANKS,))
        CLOCK.step_s, CLOCK.own_s, CLOCK.real, CLOCK.step = {}, {}, 0, 0

    def model(self) -> nn.Module:
        # the last layer's backward pass comes first
        return nn.Sequential(*(_Layer(seconds) for seconds in reversed(self._plant.backward_s)))

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(size, 4, generator=generator)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        wrapped, contended = isinstance(model, DistributedDataParallel), CLOCK.others_at_work()
        if wrapped:
            CLOCK.real = CLOCK.real or id(model)  # what sends is wrapped, and steps, before its twin
            kind = "ddp" if id(model) == CLOCK.real else "local"
        else:
            kind = "concurrent" if contended else "plain"
        plant = self._plant
        # where two batches are compared, each is a variant: both are wrapped, and send
        begin = CLOCK.next_step(str(len(batch)) if plant.forward_by_batch_s else kind)
        CLOCK.stamp()
        CLOCK.deadline = begin + plant.forward(len(batch)) + self._late(contended, wrapped)
        loss: torch.Tensor = model(batch).mean()
        CLOCK.wait_until(CLOCK.deadline)
        return loss

    def _late(self, contended: bool, wrapped: bool) -> float:
        plant, late = self._plant, 0.0
        late += plant.contention_s * contended + plant.wrapper_s * wrapped
        late += plant.straggler_s * (CLOCK.rank == plant.straggler_rank)
        turn = (CLOCK.block + CLOCK.step) % self._size
        return late + plant.jitter_s * (turn == CLOCK.rank)


class PlantedLink(Planted):
    """The same with a serial link of its own: one bucket at a time, in one thread."""

    def communication_hook(self, group: Any) -> tuple[Any, Any]:
        return _Link(group, self._plant.link_s), send


class _Link:
    def __init__(self, group: Any, seconds: float) -> None:
        self._group, self._seconds = group, seconds
        self._thread = ThreadPoolExecutor(1)

    def send(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        ready = torch.tensor([perf_counter()], dtype=torch.float64)
        works = [
            dist.all_reduce(ready, dist.ReduceOp.MAX, group=self._group, async_op=True),
            dist.all_reduce(buffer, group=self._group, async_op=True),
        ]
        self._thread.submit(self._transfer, works, ready, buffer, future)
        return future

    def _transfer(self, works: Iterable[Any], ready: torch.Tensor, buffer: torch.Tensor, future: Any) -> None:
        try:
            for work in works:
                work.wait()
            CLOCK.free_at = max(CLOCK.free_at, float(ready)) + self._seconds
            CLOCK.wait_until(CLOCK.free_at)
            future.set_result(buffer.div_(dist.get_world_size(self._group)))
        except Exception as error:
            future.set_exception(error)


def send(link, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations kept as strings
    """The communication hook: really all-reduces the bucket, then takes the planted time."""
    return link.send(bucket.buffer())


def build(stamps: str, **planted: Any) -> Planted:
    """The factory of ``Plant.spec``."""
    for name in ("backward_s", "forward_by_batch_s"):
        planted[name] = tuple(tuple(item) if isinstance(item, list) else item for item in planted[name])
    plant = Plant(**planted)
    return (PlantedLink if plant.link_s else Planted)(plant, stamps)


class Faulty:
    """A small real model that fails, or misbehaves, when told."""

    def __init__(
        self,
        fault: str = "",
        ranks: tuple[int, ...] = (0,),
        after: int = 0,
        wrapper: str = "any",
        kind: str = "linear",
        largest_batch: float = math.inf,
        within: str = "",  # the function of raybench in which alone it fails
        # its loss those of all ranks' outputs, as contrastive ones do: by torch.distributed, by its "nn", or
        # only where there are "several"
        gathers: str = "",
    ) -> None:
        self._gathers = gathers
        self._within = within
        self._fault, self._ranks, self._after, self._wrapper = fault, tuple(ranks), after, wrapper
        self._kind, self._largest, self._calls = kind, largest_batch, 0
        self._rank = worker_rank()
        SEEN_THREADS.clear()

    def model(self) -> nn.Module:
        return _MODELS[self._kind]()

    def batch(self, size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, 16, generator=generator), torch.randn(size, 4, generator=generator)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        if len(inputs) > self._largest:
            raise MemoryError(f"no memory for {len(inputs)} samples")
        SEEN_THREADS.add(torch.get_num_threads())
        wrapper = "ddp" if isinstance(model, DistributedDataParallel) else "bare"
        self._calls += self._wrapper in ("any", wrapper)
        outputs = model(inputs)
        loss = nn.functional.mse_loss(outputs, targets)
        if self._gathers and (self._gathers != "several" or dist.get_world_size() > 1):
            if self._gathers == "nn":
                with warnings.catch_warnings():  # torch has newer ones
                    warnings.simplefilter("ignore", FutureWarning)
                    every = list(differentiable.all_gather(outputs))
            else:
                every = [torch.empty_like(outputs) for _ in range(dist.get_world_size())]
                dist.all_gather(every, outputs.detach())
            # bounded below: after many steps, as on a fast machine, it would else be infinite
            loss = loss + torch.stack(every).square().mean() * outputs.square().mean()
            SEEN_TEAMS.add((wrapper, len(every)))
        here = self._rank in self._ranks and self._wrapper in ("any", wrapper) and self._is_within()
        if self._calls > self._after and here:
            if self._fault == "nan":
                return loss * math.nan
            if self._fault == "memory":
                raise MemoryError("planted: no memory")
            if self._fault == "error":
                raise ValueError(f"planted on rank {self._rank}")
        return loss

    def _is_within(self) -> bool:
        frames = traceback.walk_stack(None)
        return not self._within or any(frame.f_code.co_name == self._within for frame, _ in frames)


SEEN_THREADS: set[int] = set()
SEEN_TEAMS: set[tuple[str, int]] = (
    set()
)  # of any trial, by how the model is wrapped: with how many it gathers


class Compressed(Faulty):
    """Its gradients are compressed by PowerSGD from the second step on, as users do."""

    def communication_hook(self, group: Any) -> tuple[Any, Any]:
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        state = powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2, min_compression_rate=1)
        return state, powerSGD_hook.powerSGD_hook


def _meet(*_: Any) -> None:
    dist.barrier()


class Meeting(Faulty):
    """All ranks meet in its code beside the passes, as where one downloads for all."""

    def __init__(self, **arguments: Any) -> None:
        dist.barrier()
        super().__init__(**arguments)

    def model(self) -> nn.Module:
        dist.barrier()
        return super().model()

    def batch(self, size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        dist.barrier()
        return super().batch(size, generator)

    def dataset(self, split: str) -> Any:
        return list(zip(*self.batch(64, torch.Generator()), strict=True))

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        dist.barrier()
        made = torch.optim.SGD(parameters, 0.01)
        made.register_step_pre_hook(_meet)
        return made


class Encoded(Faulty):
    """Its batches are of transformers' own type, which is no dict."""

    def batch(self, size: int, generator: torch.Generator) -> Any:
        from transformers import BatchEncoding

        inputs, targets = super().batch(size, generator)
        return BatchEncoding({"inputs": inputs, "targets": targets})

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return super().loss(model, (batch["inputs"], batch["targets"]))


class NeedsDDP(Faulty):
    """Its hook takes what DDP alone hands over."""

    def communication_hook(self, group: Any) -> tuple[Any, Any]:
        def hook(state, bucket):  # type: ignore[no-untyped-def]
            if not isinstance(bucket, dist.GradBucket):  # type: ignore[attr-defined]
                raise TypeError("planted: no bucket of DDP's")
            sent = dist.all_reduce(bucket.buffer().div_(group.size()), group=group, async_op=True)
            return sent.get_future().then(_value)

        return None, hook


def _value(future: Any) -> torch.Tensor:
    (value,) = future.value()
    return value


class _Synchronized(nn.SyncBatchNorm):
    """Torch's takes tensors of GPUs alone; with one rank it normalizes a batch, and calls nobody."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if dist.get_world_size() > 1:  # and once more in the backward pass
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                values = values + 0 * differentiable.all_reduce(values.mean(dim=0))
        return nn.functional.batch_norm(values, None, None, self.weight, self.bias, training=True)


class _Keeps(nn.Module):
    """Sends in a group that it found, or ``makes``, where it was made."""

    def __init__(self, makes: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.group: Any = dist.new_group(range(dist.get_world_size())) if makes else dist.group.WORLD

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(values)
        dist.all_reduce(result.detach().sum(), group=self.group)
        return result


class _WithUnused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.used(values)
        return result


def _linear() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def _buffers() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))


def _synchronized() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), _Synchronized(32), nn.Linear(32, 4))


def _uncopyable() -> nn.Module:
    # its weight is computed, no leaf of the graph: copy.deepcopy refuses it
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(16, 32)), nn.ReLU(), nn.Linear(32, 4))


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": _linear,
    "buffers": _buffers,
    "unused": _WithUnused,
    "synchronized": _synchronized,
    "uncopyable": _uncopyable,
    "keeps": lambda: _Keeps(makes=False),
    "makes": lambda: _Keeps(makes=True),
}


def compressed(**arguments: Any) -> Faulty:
    """The same, its gradients compressed."""
    return Compressed(**arguments)


def encoded(**arguments: Any) -> Faulty:
    """The same, with other batches."""
    return Encoded(**arguments)


def meeting(**arguments: Any) -> Faulty:
    """The same, with more meetings."""
    return Meeting(**arguments)


def needs_ddp(**arguments: Any) -> Faulty:
    """The same, with a hook of its own."""
    return NeedsDDP(**arguments)


def faulty(**arguments: Any) -> Faulty:
    """The factory of the workloads in ``test_trial_failures``."""
    return Faulty(**arguments)
