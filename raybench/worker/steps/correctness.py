"""Does a strategy train what one device trains? Its losses and gradients, and what compression does."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from raybench.records.measurements import LossParity
from raybench.records.requests import Configuration
from raybench.worker.cache import Kept
from raybench.worker.communicators import Team
from raybench.worker.steps.parity import gradients, loss_parity, own_generators
from raybench.worker.strategies.models import Bench
from raybench.workloads.protocol import Workload


@dataclass(frozen=True)
class Correctness:
    """What was found of the strategy's losses and gradients."""

    parity: LossParity | None
    parity_missing: str | None  # why it could not be had
    compression_error: float | None


def check_correctness(
    config: Configuration,
    workload: Workload,
    bench: Bench,
    team: Team,
    kept: Kept,
    *,
    step_s: float | None,
    max_seconds: float,
) -> Correctness:
    """Loss parity, and compression's error where gradients are compressed.

    ``step_s`` and ``max_seconds`` as ``loss_parity`` has them. A collective call.
    """
    bench.activate()
    error = None
    if config.setting.gradient_compression != "none":
        error = compression_error(bench, team)
    parity, missing = loss_parity(config, workload, bench, team, kept, step_s=step_s, max_seconds=max_seconds)
    return Correctness(parity, missing, error)


def compression_error(bench: Bench, team: Team) -> float | None:
    """|compressed - exact| / |exact| of the averaged gradient of one step, Euclidean norms.

    None where that is no number. Both from the same weights and batch; the exact one is averaged in fp32. A
    collective call.
    """
    assert bench.real is not None
    team.same_weights(bench.real.tensors())
    batch = bench.real.batches.next()
    with own_generators(bench.device):
        found = []
        for lane in (bench.real, bench.bare):
            torch.manual_seed(team.rank)
            lane.optimizer.zero_grad(set_to_none=True)
            lane.backward(batch)
            found.append(_gradient(lane.module))
            lane.optimizer.zero_grad(set_to_none=True)
    compressed, exact = found
    dist.all_reduce(exact, group=team.data)
    exact /= team.size
    error = float(torch.linalg.vector_norm(compressed - exact) / torch.linalg.vector_norm(exact))
    return error if math.isfinite(error) else None


def _gradient(module: nn.Module) -> torch.Tensor:
    return torch.cat([gradient.flatten().float() for gradient in gradients(module)])
