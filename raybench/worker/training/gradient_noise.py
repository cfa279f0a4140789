"""Gradients of small batches and of the big batch that they make up, on passes outside of the timed ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.records.requests import TrainingRequest
from raybench.records.results import GradientNorms
from raybench.worker.communicators import Team, default_group
from raybench.worker.failures import AgreedFailure, drop_frames
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
        self, request: TrainingRequest, team: Team, train: EpochBatches, models: StrategyModels
    ) -> None:
        self._request, self._team, self._train, self._models = request, team, train, models
        self.missing: str | None = None  # why there is none

    def after(self, stepper: Stepper, number: int, steps: int) -> tuple[GradientNorms, ...]:
        """Norms of a few batches at the weights of ``stepper`` after epoch ``number``, which had ``steps``.

        Empty where ``missing`` says why. A collective call.
        """
        if self.missing:
            return ()
        try:
            return self._norms_after(stepper, number, steps)
        except (AgreedFailure, InvalidTrialError) as failure:
            drop_frames(failure)
            self.missing = str(failure)
            return ()
        finally:
            if self._models.is_sharded:
                self._models.device.release_memory()  # what follows would be taken to need it

    def _norms_after(self, stepper: Stepper, number: int, steps: int) -> tuple[GradientNorms, ...]:
        num_small = 2 if self._team.size == 1 else 1  # where other ranks have the rest of the big one
        most = self._train.num_samples // (num_small * self._team.size)
        size = min(self._request.config.batch_size, most)
        if not size:
            raise InvalidTrialError(f"{self._train.num_samples} training samples are too few")
        count = min(max(steps // STEPS_PER_BATCH, LEAST_BATCHES), MOST_BATCHES)
        module = self._whole(stepper) if self._models.is_sharded else self._models.bare.module
        workload, norms = self._models.workload, list[GradientNorms]()
        with state_preserved(module, self._models.device):
            for parts in self._parts(number, size, num_small, count):
                batches: list[Any] = self._team.agreed(partial(list, map(self._train.read, parts)))
                norms.append(gradient_norms(self._team, module, workload, batches, size))
        return tuple(norms)

    def _whole(self, stepper: Stepper) -> nn.Module:
        """A copy of the sharded model, whole, at the weights of now."""
        failure, module = self._team.tried(self._models.whole_copy)
        if failure or module is None:
            raise InvalidTrialError(f"no room for a whole model next to the shards: {failure}")
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


def gradient_norms(
    team: Team, module: nn.Module, workload: Workload, batches: Sequence[Any], batch_size: int
) -> GradientNorms:
    """Squared norms of this team's local gradients and of their mean.

    ``batches`` are this rank's, of ``batch_size`` samples each; ``module`` is the bare model, in which no
    gradient is left. A collective call; raises on every rank where one has no gradient.
    """

    def local() -> tuple[list[float], torch.Tensor]:
        squares, total = list[float](), torch.zeros(())
        for batch in batches:
            gradient = _gradient(module, workload, batch)
            squares.append(float(gradient.double().square().sum()))
            total = gradient if len(squares) == 1 else total.add_(gradient)
        return squares, total

    squares, total = team.agreed(local)
    if team.size > 1:
        dist.all_reduce(total, group=team.data)
    all_squares = [square for of_rank in team.gather(squares) for square in of_rank]
    mean = total / len(all_squares)
    big_square = float(mean.double().square().sum())
    if not math.isfinite(sum(all_squares) + big_square):
        raise InvalidTrialError("a gradient is not finite")
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
