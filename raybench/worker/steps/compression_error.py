"""What compression does to a gradient."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import nn

from raybench.worker.communicators import Team
from raybench.worker.strategies.gradients import gradients_of
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper


def compression_error(models: StrategyModels, team: Team) -> float | None:
    """|compressed - exact| / |exact| of the averaged gradient of one step, Euclidean norms.

    None where that is no number. Both from the same weights and batch; the exact one is averaged in fp32. A
    collective call.
    """
    assert models.wrapped is not None
    team.broadcast(models.wrapped.tensors())
    batch = models.wrapped.batches.next()
    with models.device.fork_rng():
        compressed = _gradient_of(models.wrapped, batch, team.rank)
        exact = _gradient_of(models.bare, batch, team.rank)
    dist.all_reduce(exact, group=team.data)
    exact /= team.size
    error = float(torch.linalg.vector_norm(compressed - exact) / torch.linalg.vector_norm(exact))
    return error if math.isfinite(error) else None


def _gradient_of(stepper: Stepper, batch: object, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    stepper.optimizer.zero_grad(set_to_none=True)
    stepper.backward(batch)
    gradient = _as_vector(stepper.module)
    stepper.optimizer.zero_grad(set_to_none=True)
    return gradient


def _as_vector(module: nn.Module) -> torch.Tensor:
    return torch.cat([gradient.flatten().float() for gradient in gradients_of(module)])
