"""Gradients of small batches and of the big batch that they make up, on passes outside of the timed ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from raybench.records.requests import TrainingRequest
from raybench.records.results import GradientNorms
from raybench.worker.communicators import Team, default_group
from raybench.worker.failures import describe
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.sharding import gather_weights
from raybench.worker.strategies.stepper import Stepper
from raybench.worker.training.epoch_batches import PRIME, EpochBatches, Part, shuffled, split, state_preserved
from raybench.workloads.protocol import Workload

LEAST_BATCHES, MOST_BATCHES = 2, 8  # big ones, after each epoch
STEPS_PER_BATCH = 10


class GradientNoise:
    """Looks at the gradients of a training trial after each of its epochs, on one rank."""

    def __init__(
        self,
        request: TrainingRequest,
        team: Team,
        workload: Workload,
        train: EpochBatches,
        models: StrategyModels,
    ) -> None:
        self._request, self._team, self._workload = request, team, workload
        self._train, self._models = train, models
        self.missing: str | None = None  # why there is none

    def after(self, stepper: Stepper, number: int, steps: int) -> tuple[GradientNorms, ...]:
        """Norms of a few batches at the weights of ``stepper`` after epoch ``number``, which had ``steps``.

        Empty where ``missing`` says why. A collective call.
        """
        if self.missing:
            return ()
        norms = self._norms_after(stepper, number, steps)
        if isinstance(norms, str):
            self.missing = norms
            return ()
        return tuple(norms)

    def _norms_after(self, stepper: Stepper, number: int, steps: int) -> list[GradientNorms] | str:
        num_small = small_batches(self._team.size)
        most = self._train.num_samples // (num_small * self._team.size)
        size = min(self._request.config.batch_size, most)
        if not size:
            return f"{self._train.num_samples} training samples are too few"
        if not self._models.is_sharded:
            return self._norms(self._models.bare.module, number, size, num_small, steps)
        module = self._whole(stepper)
        norms = module if isinstance(module, str) else self._norms(module, number, size, num_small, steps)
        del module
        self._models.device.release_memory()  # what follows would be taken to need it
        return norms

    def _norms(
        self, module: nn.Module, number: int, size: int, num_small: int, steps: int
    ) -> list[GradientNorms] | str:
        all_norms = list[GradientNorms]()
        with state_preserved(module, self._models.device):
            for parts in self._parts(number, size, num_small, num_batches(steps)):
                batches = [self._train.read(part) for part in parts]
                norms = gradient_norms(self._team, module, self._workload, batches, size)
                if isinstance(norms, str):
                    return norms
                all_norms.append(norms)
        return all_norms

    def _whole(self, stepper: Stepper) -> nn.Module | str:
        """A copy of the sharded model, whole, at the weights of now; or why some rank has none."""
        failure, module = None, None
        try:
            module = self._models.whole_copy()
        except Exception as error:
            failure = describe(error)
        failures = [reason for reason in self._team.gather(failure) if reason]
        if failures:
            return f"no room for a whole model beside the shards: {failures[0]}"
        assert module is not None
        gather_weights(stepper.module, module)
        return module

    def _parts(self, number: int, size: int, num_small: int, count: int) -> list[list[Part]]:
        """Batches drawn again: those of the epoch are the ones that the model has just been fitted to."""
        big = size * num_small * self._team.size
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
            micro_batches=num_small,
            seed=seed,
        )


def num_batches(steps: int) -> int:
    """How many big batches are looked at after an epoch of ``steps``."""
    return min(max(steps // STEPS_PER_BATCH, LEAST_BATCHES), MOST_BATCHES)


def small_batches(team_size: int) -> int:
    """Small batches of each rank: one, where other ranks have the rest of the big one."""
    return 2 if team_size == 1 else 1


def gradient_norms(
    team: Team, module: nn.Module, workload: Workload, batches: Sequence[Any], batch_size: int
) -> GradientNorms | str:
    """Squared norms of this team's local gradients and of their mean; why not, where there are none.

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
    failures = [reason for _, reason in reports if reason]
    if failures:
        return failures[0]
    assert total is not None
    if team.size > 1:
        dist.all_reduce(total, group=team.data)
    all_squares = [square for of_rank, _ in reports for square in of_rank]
    mean = total / len(all_squares)
    big_square = float(mean.double().square().sum())
    if not math.isfinite(sum(all_squares) + big_square):
        return "a gradient is not finite"
    return GradientNorms(
        small_batch=batch_size,
        small_square=sum(all_squares) / len(all_squares),
        big_batch=batch_size * len(all_squares),
        big_square=big_square,
    )


def _gradient(module: nn.Module, workload: Workload, batch: Any) -> torch.Tensor:
    """The gradient of the mean loss of ``batch``, as one vector, in full precision."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    with default_group(None):
        gradients = torch.autograd.grad(workload.loss(module, batch), parameters, allow_unused=True)
    parts = [
        (torch.zeros_like(parameter) if gradient is None else gradient).reshape(-1).float()
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]
    return torch.cat(parts)
