"""Gradients of small batches and of the big batch that they make up, on passes beside the timed ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from raybench.records.requests import TrainingRequest
from raybench.records.trainings import GradientNorms
from raybench.worker.communicators import Team
from raybench.worker.devices.probe import give_back_memory
from raybench.worker.failures import describe
from raybench.worker.strategies.models import Bench
from raybench.worker.strategies.sharding import gather_weights
from raybench.worker.strategies.stepper import Lane
from raybench.worker.training.epochs import PRIME, EpochBatches, Part, shuffled, split
from raybench.workloads.protocol import Workload

LEAST_BATCHES, MOST_BATCHES = 2, 8  # big ones, after each epoch
STEPS_PER_BATCH = 10


class NoiseProbe:
    """Looks at the gradients of a training trial after each of its epochs, on one rank."""

    def __init__(
        self, request: TrainingRequest, team: Team, workload: Workload, train: EpochBatches, bench: Bench
    ) -> None:
        self._request, self._team, self._workload = request, team, workload
        self._train, self._bench = train, bench
        self.missing: str | None = None  # why there is nothing to see

    def after(self, lane: Lane, number: int, steps: int) -> tuple[GradientNorms, ...]:
        """Norms of a few batches at the weights of ``lane`` after epoch ``number``, which had ``steps``.

        Empty where ``missing`` says why. A collective call.
        """
        if self.missing:
            return ()
        found = self._seen(lane, number, steps)
        if isinstance(found, str):
            self.missing = found
            return ()
        return tuple(found)

    def _seen(self, lane: Lane, number: int, steps: int) -> list[GradientNorms] | str:
        each = small_batches(self._team.size)
        size = min(self._request.config.batch_size, self._train.num_samples // (each * self._team.size))
        if not size:
            return f"{self._train.num_samples} training samples are too few"
        if not self._bench.shards:
            return self._norms(self._bench.bare.module, number, size, each, steps)
        module = self._whole(lane)
        found = module if isinstance(module, str) else self._norms(module, number, size, each, steps)
        del module
        give_back_memory(self._bench.device)  # what follows would be taken to need it
        return found

    def _norms(
        self, module: nn.Module, number: int, size: int, each: int, steps: int
    ) -> list[GradientNorms] | str:
        found = list[GradientNorms]()
        with undisturbed(module, self._bench.device):
            for parts in self._parts(number, size, each, num_batches(steps)):
                batches = [self._train.read(part) for part in parts]
                norms = gradient_norms(self._team, module, self._workload, batches, size)
                if isinstance(norms, str):
                    return norms
                found.append(norms)
        return found

    def _whole(self, lane: Lane) -> nn.Module | str:
        """A copy of the sharded model, whole, at the weights of now; or why some rank has none."""
        failure, module = None, None
        try:
            module = self._bench.whole_copy()
        except Exception as error:
            failure = describe(error)
        failures = [found for found in self._team.gather(failure) if found]
        if failures:
            return f"no room for a whole model beside the shards: {failures[0]}"
        assert module is not None
        gather_weights(lane.module, module)
        return module

    def _parts(self, number: int, size: int, each: int, count: int) -> list[list[Part]]:
        """Batches drawn anew: those of the epoch are the ones that the model has just been fitted to."""
        big = size * each * self._team.size
        seed = (self._request.config.seed + 1) * PRIME + number
        order: list[int] = []
        for draw in range(math.ceil(count * big / self._train.num_samples)):
            rest = shuffled(self._train.num_samples, seed, draw)
            order += rest[: len(rest) - len(rest) % big]  # no big batch has a sample twice
        return split(
            order[: count * big],
            step_size=big,
            ranks=self._team.size,
            rank=self._team.rank,
            micro_batches=each,
            seed=seed,
        )


def num_batches(steps: int) -> int:
    """How many big batches are looked at after an epoch of so many steps."""
    return min(max(steps // STEPS_PER_BATCH, LEAST_BATCHES), MOST_BATCHES)


def small_batches(team_size: int) -> int:
    """Small batches of each rank: one, where other ranks have the rest of the big one."""
    return 2 if team_size == 1 else 1


def gradient_norms(
    team: Team, module: nn.Module, workload: Workload, batches: Sequence[Any], batch_size: int
) -> GradientNorms | str:
    """Squared norms of this team's local gradients and of their mean; why not, where a rank had no memory.

    ``batches`` are this rank's, of ``batch_size`` samples each; ``module`` is the bare model, in which no
    gradient is left. A collective call.
    """
    squares, failure = list[float](), None
    total: torch.Tensor | None = None
    try:
        for batch in batches:
            gradient = _gradient(module, workload, batch)
            squares.append(float(gradient.double().square().sum()))
            total = gradient if total is None else total.add_(gradient)
    except Exception as error:
        failure = describe(error)
    reports: list[tuple[list[float], str | None]] = team.gather((squares, failure))
    failures = [found for _, found in reports if found]
    if failures:
        return failures[0]
    assert total is not None
    if team.size > 1:
        dist.all_reduce(total, group=team.data)
    every = [square for found, _ in reports for square in found]
    mean = total / len(every)
    return GradientNorms(
        small_batch=batch_size,
        small_square=sum(every) / len(every),
        big_batch=batch_size * len(every),
        big_square=float(mean.double().square().sum()),
    )


@contextmanager
def undisturbed(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Buffers and generators are afterwards what they were: the training goes on as if nothing had been."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)


def _gradient(module: nn.Module, workload: Workload, batch: Any) -> torch.Tensor:
    """The gradient of the mean loss of ``batch``, as one vector, in full precision."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(workload.loss(module, batch), parameters, allow_unused=True)
    parts = [
        (torch.zeros_like(parameter) if gradient is None else gradient).reshape(-1).float()
        for parameter, gradient in zip(parameters, found, strict=True)
    ]
    return torch.cat(parts)
