"""The strategy's numbers against those of one device: losses and gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.records.requests import Configuration
from raybench.records.results import LossParity
from raybench.spec.knobs import Setting
from raybench.worker.batches import Batches, EndlessBatches, affordable_steps, make_batches
from raybench.worker.communicators import Team, default_group
from raybench.worker.failures import AgreedFailure
from raybench.worker.group_cache import GroupCache
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.sharding import copy_weights, gathered
from raybench.worker.strategies.stepper import Stepper, gradients_of

STEPS, LEAST_STEPS = 5, 2  # the first loss is before any update
MAX_SHARE = 0.25  # of the trial's time, for the one device that takes all samples


def loss_parity(
    config: Configuration,
    models: StrategyModels,
    team: Team,
    cache: GroupCache,
    step_s: float | None,
    max_seconds: float,
    *,
    communicates: bool,
) -> LossParity:
    """Train from scratch, on all ranks under the strategy and on the leader alone.

    ``step_s`` is the step of one device at its own batch, None where the model does not fit on one;
    ``max_seconds`` the trial's time. The weights are those of a new model afterwards. A collective call:
    raises ``InvalidTrialError`` on every rank where one device cannot take what all take, or has other losses
    by design.
    """
    if step_s is None:
        raise InvalidTrialError("the model does not fit on one device")
    if communicates:
        raise InvalidTrialError("the forward pass communicates, on one device with nobody")
    pieces = team.size * config.setting.gradient_accumulation
    steps = affordable_steps(MAX_SHARE * max_seconds, pieces * step_s, STEPS, least=LEAST_STEPS)
    models.renew_optimizers()  # the weights will be new, and these runs are to find the memory of a step
    with models.device.fork_rng():
        initial = team.agreed(lambda: _new_model(config, models, cache))
        kinds = set(team.gather(models.device.name() if config.device == "cuda" else ""))
        if why := why_not_alike(initial, config.setting, kinds):
            raise InvalidTrialError(why)

        def reference_run() -> ShortRun:
            if not team.leads:
                return ShortRun([], [])
            return run_on_one_device(config, models, cache, team.size, steps)

        try:
            reference = team.agreed(reference_run)
        except AgreedFailure as failure:
            raise InvalidTrialError(f"one device could not take the samples of all: {failure}") from failure
        models.device.end_trial()  # that device has to have as much memory again as the others
        run = run_under_strategy(config, initial, models, team, steps)
    return LossParity(
        samples_per_step=config.global_batch_size,
        losses=_finite(run.losses),
        reference_losses=_finite(team.gather(reference.losses)[0]),
        gradient_difference=_relative_difference(run.gradient, reference.gradient),
    )


def why_not_alike(model: nn.Module, setting: Setting, kinds: Collection[str]) -> str:
    """What in the model makes losses differ by design; ``kinds`` of devices that the ranks have."""
    modules = tuple(model.modules())
    if any(isinstance(each, nn.SyncBatchNorm) for each in modules):
        return "SyncBatchNorm takes its statistics over all devices"
    drops = any(isinstance(each, nn.modules.dropout._DropoutNd) and each.p > 0 for each in modules)
    if drops and setting.compile:
        return "compiled code draws its own dropout masks"
    if drops and len(kinds) > 1:  # a GPU's masks depend on its number of multiprocessors
        return "dropout masks are others on another kind of device"
    return ""


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


@default_group(None)
def _new_model(config: Configuration, models: StrategyModels, cache: GroupCache) -> nn.Module:
    return cache.model(models.workload, config).train()


@dataclass(frozen=True)
class ShortRun:
    """What a few steps showed."""

    losses: list[float]  # the mean of each step
    # of the first step, by parameter, on the CPU; empty where it is not kept, or fp16 skipped the step
    gradient: list[torch.Tensor]


def run_on_one_device(
    config: Configuration, models: StrategyModels, cache: GroupCache, world_size: int, steps: int
) -> ShortRun:
    """One device that takes the pieces of all ranks; neither compiled nor checkpointed."""
    pieces = seeded_pieces(config, models, range(world_size))
    accumulation = world_size * config.setting.gradient_accumulation
    setting = config.setting.model_copy(update={"gradient_accumulation": accumulation})
    module = _new_model(config, models, cache).to(models.device.torch_device)
    return _run(models.stepper(module, pieces, setting=setting), steps, keep_gradient=True)


def run_under_strategy(
    config: Configuration, initial: nn.Module, models: StrategyModels, team: Team, steps: int
) -> ShortRun:
    """The measured module with new weights and a new optimizer; the gradient is kept on the leader only.

    A collective call.
    """
    wrapped = models.wrapped
    assert wrapped is not None
    copy_weights(initial, wrapped.module)
    pieces = seeded_pieces(config, models, [team.rank])
    stepper = models.stepper(wrapped.module, pieces, team, autocast=wrapped.autocast)
    run = _run(stepper, steps, keep_gradient=team.leads)
    of_ranks = team.gather(run.losses)
    means = [sum(losses) / team.size for losses in zip(*of_ranks, strict=True)]
    return ShortRun(means, run.gradient)


def _run(stepper: Stepper, steps: int, *, keep_gradient: bool) -> ShortRun:
    losses, gradient = list[torch.Tensor](), list[torch.Tensor]()

    def record(loss: torch.Tensor, batch: Any) -> torch.Tensor:
        losses.append(loss.detach().float())
        return loss / stepper.batches_per_step

    # when it is averaged, and no longer scaled as fp16 needs it (for a fused optimizer it is, in both runs)
    def copy_gradient(*_: Any) -> None:
        for part in gradients_of(stepper.module):
            whole = gathered(part, keep=keep_gradient)
            if keep_gradient:
                gradient.append(whole.to("cpu", copy=True))

    stepper.weigh_loss = record
    hook = stepper.optimizer.register_step_pre_hook(copy_gradient)
    stepper.step()
    hook.remove()
    for _ in range(steps - 1):
        stepper.step()
    return ShortRun(torch.stack(losses).view(steps, -1).mean(dim=1).tolist(), gradient)


_SEEDS = 2**31 - 1


def seeded_pieces(config: Configuration, models: StrategyModels, ranks: Sequence[int]) -> Batches:
    """The micro-batches of ``ranks``, rank after rank in each step, torch seeded for each by its place.

    So augmentation and dropout draw the same for a piece on any rank.
    """
    # read in this process: a loader's own processes would draw otherwise
    in_process = config.setting.model_copy(update={"workers": 0})
    read = config.model_copy(update={"setting": in_process})
    sources = [
        (rank, make_batches(models.workload, read, config.batch_size, rank, models.device)) for rank in ranks
    ]

    def in_turn() -> Iterator[Any]:
        for step in itertools.count():
            for rank, source in sources:
                for micro_batch in range(config.setting.gradient_accumulation):
                    place = ((config.seed * 1_009 + step) * 1_000_003 + rank) * 1_009 + micro_batch
                    torch.manual_seed(place % _SEEDS)
                    batch = source.next()
                    torch.manual_seed(place % _SEEDS)
                    yield batch

    return EndlessBatches(in_turn().__next__)
