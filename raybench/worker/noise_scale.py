"""Gradients of small batches and of the big batch that they make up, on passes beside the timed ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from raybench.record import GradientNorms
from raybench.worker.communication import Team, describe
from raybench.workloads.protocol import Workload

LEAST_BATCHES, MOST_BATCHES = 2, 8  # big ones, after each epoch
STEPS_PER_BATCH = 10


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
