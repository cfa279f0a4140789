"""Does a strategy train what one device trains? Its losses and gradients, and what compression does."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.records.measurements import LossParity
from raybench.records.requests import Configuration
from raybench.worker.cache import GroupCache
from raybench.worker.communicators import Team
from raybench.worker.steps.compression_error import compression_error
from raybench.worker.steps.parity import loss_parity
from raybench.worker.strategies.models import StrategyModels
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
    models: StrategyModels,
    team: Team,
    cache: GroupCache,
    *,
    step_s: float | None,
    max_seconds: float,
) -> Correctness:
    """Loss parity, and compression's error where gradients are compressed.

    ``step_s`` and ``max_seconds`` as ``loss_parity`` has them. A collective call.
    """
    models.activate()
    error = None
    if config.setting.gradient_compression != "none":
        error = compression_error(models, team)
    parity, missing = loss_parity(
        config, workload, models, team, cache, step_s=step_s, max_seconds=max_seconds
    )
    return Correctness(parity, missing, error)
