"""The strategy's numbers against those of one device: losses, gradients, and what compression does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.records.requests import Configuration
from raybench.records.results import LossParity
from raybench.spec.knobs import Setting
from raybench.worker.batches import Batches, make_batches
from raybench.worker.communicators import Team, collectives_alone
from raybench.worker.devices.device import Device
from raybench.worker.failures import describe, drop_frames
from raybench.worker.group_cache import GroupCache
from raybench.worker.strategies.models import StrategyModels, make_optimizer
from raybench.worker.strategies.sharding import copy_weights, gathered
from raybench.worker.strategies.stepper import Stepper, gradients_of
from raybench.workloads.batch_parts import joined
from raybench.workloads.protocol import Workload

STEPS, LEAST_STEPS = 5, 2  # the first loss is before any update
MAX_SHARE = 0.25  # of the trial's time, for the one device that takes all samples


def loss_parity(
    config: Configuration,
    workload: Workload,
    models: StrategyModels,
    team: Team,
    cache: GroupCache,
    step_s: float | None,
    max_seconds: float,
) -> LossParity:
    """Train from scratch, on all ranks under the strategy and on the leader alone.

    ``step_s`` is the step of one device at its own batch, None where the model does not fit on one;
    ``max_seconds`` the trial's time. The weights are those of a new model afterwards. A collective call:
    raises ``InvalidTrialError`` on every rank where one device cannot take what all take.
    """
    if step_s is None:
        raise InvalidTrialError("the model does not fit on one device")
    pieces = team.size * config.setting.gradient_accumulation
    affordable = MAX_SHARE * max_seconds / (pieces * step_s)
    steps = max(LEAST_STEPS, min(STEPS, int(affordable)))
    models.renew_optimizers()  # the weights will be new, and these runs are to find the memory of a step
    with models.device.fork_rng():
        initial = team.agreed(lambda: _new_model(config, workload, cache))
        may_differ = _may_differ(initial, config.setting)
        failure: Exception | None = None
        reference, collectives = ShortRun([], []), collectives_alone()
        try:
            if team.leads:
                reference = run_on_one_device(config, workload, cache, team.size, steps, models.device)
        except Exception as error:
            failure = error
        if failure is not None:
            drop_frames(failure)
        models.device.end_trial()  # that device has to have as much memory again as the others
        failures = team.gather(describe(failure) if failure else None)
        if failures[0]:
            raise InvalidTrialError(f"one device could not take the samples of all: {failures[0]}")
        if collectives_alone() > collectives:
            may_differ += ("the forward pass communicates, on one device with nobody",)
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


@dataclass(frozen=True)
class ShortRun:
    """What a few steps showed."""

    losses: list[float]  # the mean of each step
    # of the first step, by parameter, on the CPU; empty where it is not kept, or fp16 skipped the step
    gradient: list[torch.Tensor]


def run_on_one_device(
    config: Configuration,
    workload: Workload,
    cache: GroupCache,
    world_size: int,
    steps: int,
    device: Device,
) -> ShortRun:
    """One device that takes the pieces of all ranks; neither compiled nor checkpointed."""
    pieces = SeededPieces(config, workload, range(world_size), device)
    accumulation = world_size * config.setting.gradient_accumulation
    setting = config.setting.model_copy(update={"gradient_accumulation": accumulation})
    module = _new_model(config, workload, cache).to(device.torch_device)
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
            group=wrapped.group,
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
    group: dist.ProcessGroup | None = None,
    autocast: bool = True,
) -> ShortRun:
    recorded, gradient = RecordedLosses(workload), list[torch.Tensor]()
    optimizer = make_optimizer(workload, config.optimizer, module, setting.optimizer_kernels)
    place = device.torch_device
    stepper = Stepper(module, optimizer, recorded, pieces, setting, place, group=group, autocast=autocast)

    # when it is averaged, and no longer scaled as fp16 needs it (for a fused optimizer it is, in both runs)
    def copy_gradient(*_: Any) -> None:
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


_SEEDS = 2**31 - 1


class SeededPieces:
    """The micro-batches of ``ranks``, rank after rank in each step, torch seeded for each by its place.

    So augmentation and dropout draw the same for a piece on any rank. ``together``: one micro-batch
    of all ranks at once, as dp takes them.
    """

    prefetched = 0

    def __init__(
        self,
        config: Configuration,
        workload: Workload,
        ranks: Iterable[int],
        device: Device,
        *,
        together: bool = False,
    ) -> None:
        self._seed, self._accumulation = config.seed, config.setting.gradient_accumulation
        self._sources = {rank: _batches_of(config, workload, rank, device) for rank in ranks}
        self._pieces = self._joined_pieces() if together else self._single_pieces()

    def next(self) -> Any:
        """The next piece."""
        return next(self._pieces)

    def _single_pieces(self) -> Iterator[Any]:
        step = 0
        while True:
            for rank in self._sources:
                for micro_batch in range(self._accumulation):
                    yield self._read(step, rank, micro_batch)
            step += 1

    def _joined_pieces(self) -> Iterator[Any]:
        step = 0
        while True:
            for micro_batch in range(self._accumulation):
                yield joined([self._read(step, rank, micro_batch) for rank in self._sources])
            step += 1

    def _read(self, step: int, rank: int, micro_batch: int) -> Any:
        place = (((self._seed * 1_009 + step) * 1_000_003 + rank) * 1_009 + micro_batch) % _SEEDS
        torch.manual_seed(place)
        batch = self._sources[rank].next()
        torch.manual_seed(place)
        return batch


class RecordedLosses:
    """A workload that keeps its losses."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.losses: list[torch.Tensor] = []

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The workload's own, remembered."""
        value = self._workload.loss(model, batch)
        self.losses.append(value.detach())
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)


def _batches_of(config: Configuration, workload: Workload, rank: int, device: Device) -> Batches:
    """The rank's batches, read in this process: a loader's own processes would draw otherwise."""
    in_process = config.setting.model_copy(update={"workers": 0})
    config = config.model_copy(update={"setting": in_process})
    return make_batches(workload, config, config.batch_size, rank, device)


def compression_error(models: StrategyModels, team: Team) -> float | None:
    """|compressed - exact| / |exact| of the averaged gradient of one step, Euclidean norms.

    None where that is no number. Both from the same weights and batch; the exact one is averaged in fp32. A
    collective call.
    """
    assert models.wrapped is not None
    team.broadcast(models.wrapped.tensors())
    batch = models.wrapped.batches.next()
    with models.device.fork_rng():
        compressed = _gradient_of(models.wrapped, batch, team)
        exact = _gradient_of(models.bare, batch, team)
    dist.all_reduce(exact, group=team.data)
    exact /= team.size
    error = float(torch.linalg.vector_norm(compressed - exact) / torch.linalg.vector_norm(exact))
    return error if math.isfinite(error) else None


def _gradient_of(stepper: Stepper, batch: object, team: Team) -> torch.Tensor:
    torch.manual_seed(team.rank)
    stepper.optimizer.zero_grad(set_to_none=True)
    stepper.backward(batch, group=team.data)  # a loss that gathers is to be the same one
    gradient = _as_vector(stepper.module)
    stepper.optimizer.zero_grad(set_to_none=True)
    return gradient


def _as_vector(module: nn.Module) -> torch.Tensor:
    return torch.cat([gradient.flatten().float() for gradient in gradients_of(module)])
