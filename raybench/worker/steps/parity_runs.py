"""A few steps from the same weights on the same samples: on one device, and under the strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.worker.batches import Batches
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.steps.parity_batches import RecordedLosses, SeededPieces
from raybench.worker.strategies.gradients import gradients_of
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.optimizers import make_optimizer
from raybench.worker.strategies.sharding import copy_weights, gathered
from raybench.worker.strategies.stepper import Stepper
from raybench.workloads.protocol import Workload


@dataclass(frozen=True)
class ShortRun:
    """What a few steps showed."""

    losses: list[float]  # the mean of each step
    # of the first step, by parameter, on the CPU; empty where it is not kept, or fp16 skipped the step
    gradient: list[torch.Tensor]


def run_on_one_device(
    config: Configuration,
    workload: Workload,
    model: nn.Module,
    world_size: int,
    steps: int,
    device: Device,
) -> ShortRun:
    """One device that takes the pieces of all ranks; neither compiled nor checkpointed."""
    pieces = SeededPieces(config, workload, range(world_size), device)
    accumulation = world_size * config.setting.gradient_accumulation
    setting = config.setting.model_copy(update={"gradient_accumulation": accumulation})
    module = model.to(device.torch_device)
    return _run(config, workload, module, pieces, setting, device, steps, keep_gradient=True)


def run_under_strategy(
    config: Configuration,
    workload: Workload,
    initial: nn.Module,
    models: StrategyModels,
    team: Team,
    steps: int,
) -> ShortRun:
    """The measured module with new weights and a new optimizer; the gradient is kept on the leader only.

    A collective call.
    """
    wrapped, together = models.wrapped, config.setting.strategy == "dp"
    assert wrapped is not None
    copy_weights(initial, wrapped.module)
    run: ShortRun | None = None
    if team.leads or not together:
        ranks = range(team.size) if together else [team.rank]
        run = _run(
            config,
            workload,
            wrapped.module,
            SeededPieces(config, workload, ranks, models.device, together=together),
            config.setting,
            models.device,
            steps,
            keep_gradient=team.leads,
            autocast=wrapped.autocast,
        )
    of_ranks = [losses for losses in team.gather(run.losses if run else None) if losses is not None]
    means = [sum(losses) / len(of_ranks) for losses in zip(*of_ranks, strict=True)]
    return ShortRun(means, run.gradient if run else [])


def _run(
    config: Configuration,
    workload: Workload,
    module: nn.Module,
    pieces: Batches,
    setting: Setting,
    device: Device,
    steps: int,
    *,
    keep_gradient: bool,
    autocast: bool = True,
) -> ShortRun:
    recorded, gradient = RecordedLosses(workload), list[torch.Tensor]()
    optimizer = make_optimizer(workload, config.optimizer, module)
    stepper = Stepper(module, optimizer, recorded, pieces, setting, device.torch_device, autocast=autocast)

    def copy_gradient(*_: Any) -> None:  # when it is averaged, and no longer scaled as fp16 needs it
        for part in gradients_of(module):
            whole = gathered(part, keep=keep_gradient)
            if keep_gradient:
                gradient.append(whole.to("cpu", copy=True))

    hook = optimizer.register_step_pre_hook(copy_gradient)
    stepper.step()
    hook.remove()
    for _ in range(steps - 1):
        stepper.step()
    losses = torch.stack([loss.float() for loss in recorded.losses]).view(steps, -1)
    return ShortRun([float(loss) for loss in losses.mean(dim=1)], gradient)
