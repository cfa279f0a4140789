"""Loss parity: the strategy's losses and gradients beside those of one device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.records.measurements import LossParity
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.worker.cache import GroupCache
from raybench.worker.communicators import Team
from raybench.worker.failures import describe, drop_frames
from raybench.worker.steps.parity_runs import ShortRun, run_on_one_device, run_under_strategy
from raybench.worker.strategies.models import StrategyModels
from raybench.workloads.protocol import Workload

STEPS, LEAST_STEPS = 5, 2  # the first loss is before any update
MAX_SHARE = 0.25  # of the trial's time, for the one device that takes all samples


def loss_parity(
    config: Configuration,
    workload: Workload,
    models: StrategyModels,
    team: Team,
    cache: GroupCache,
    *,
    step_s: float | None,
    max_seconds: float,
) -> LossParity:
    """Train anew, on all ranks under the strategy and on the leader alone.

    ``step_s`` is the step of one device at its own batch, None where the model does not fit on one;
    ``max_seconds`` the trial's time. The weights are those of a new model afterwards. A collective call:
    raises ``InvalidTrialError`` on every rank where one device cannot take what all take.
    """
    if step_s is None:
        raise InvalidTrialError("the model does not fit on one device")
    pieces = team.size * config.setting.gradient_accumulation
    affordable = MAX_SHARE * max_seconds / (pieces * step_s)
    steps = max(LEAST_STEPS, min(STEPS, int(affordable)))
    with models.device.fork_rng():
        initial, alone = team.agreed(lambda: [_new_model(config, workload, cache) for _ in range(2)])
        may_differ = _may_differ(initial, config.setting)
        failure: Exception | None = None
        reference = ShortRun([], [])
        try:
            if team.leads:
                reference = run_on_one_device(config, workload, alone, team.size, steps, models.device)
        except Exception as error:
            failure = error
        if failure is not None:
            drop_frames(failure)
        failures = team.gather(describe(failure) if failure else None)
        if failures[0]:
            raise InvalidTrialError(f"one device could not take the samples of all: {failures[0]}")
        run = run_under_strategy(config, workload, initial, models, team, steps)
    return LossParity(
        samples_per_step=config.global_batch_size,
        losses=_finite(run.losses),
        reference_losses=_finite(team.gather(reference.losses)[0]),
        gradient_difference=_relative_difference(run.gradient, reference.gradient),
        may_differ=may_differ,
    )


def _relative_difference(gradient: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> float | None:
    """|gradient - reference| / |reference|, Euclidean norms; None where that is no number."""
    if len(gradient) != len(reference):  # fp16 skipped one's step
        return None
    apart = length = 0.0
    for part, other in zip(gradient, reference, strict=True):
        apart += float((part.double() - other).square().sum())
        length += float(other.double().square().sum())
    difference = math.sqrt(apart / length) if length else math.nan
    return difference if math.isfinite(difference) else None


def _finite(losses: Sequence[float]) -> tuple[float | None, ...]:
    """JSON has no other numbers."""
    return tuple(loss if math.isfinite(loss) else None for loss in losses)


def _new_model(config: Configuration, workload: Workload, cache: GroupCache) -> nn.Module:
    return cache.model(workload, config.workload.model_dump_json(), config.seed).train()


def _may_differ(model: nn.Module, setting: Setting) -> tuple[str, ...]:
    """What in the model makes a difference legitimate."""
    reasons = []
    modules = list(model.modules())
    drops = any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in modules)
    if drops and (setting.strategy == "dp" or setting.compile):
        what = "compiled code" if setting.compile else "each device of dp"
        reasons.append(f"{what} draws dropout's masks anew")
    if any(isinstance(module, nn.SyncBatchNorm) for module in modules):
        reasons.append("SyncBatchNorm takes its statistics over all devices")
    return tuple(reasons)
