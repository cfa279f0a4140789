"""Does a strategy train what one device trains? Its losses, its gradients, what compression does to them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from raybench.records.measurements import LossParity
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.worker.batches import Batches, make_batches
from raybench.worker.cache import Kept
from raybench.worker.communicators import Team
from raybench.worker.failures import describe
from raybench.worker.strategies.data_parallel import joined
from raybench.worker.strategies.models import Bench
from raybench.worker.strategies.sharding import copy_weights, gathered
from raybench.worker.strategies.stepper import Lane, make_optimizer
from raybench.workloads.protocol import Workload

STEPS, LEAST_STEPS = 5, 2  # the first loss is before any update
MAX_SHARE = 0.25  # of the trial's time, for the one device that takes all samples

_SEEDS = 2**31 - 1


@dataclass(frozen=True)
class _Steps:
    """What a few steps showed."""

    losses: list[float]  # the mean of each step
    gradient: list[torch.Tensor]  # of the first step, by parameter, on the CPU; only where it is kept


class _Recorded:
    """A workload that keeps its losses."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.losses: list[torch.Tensor] = []

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        value = self._workload.loss(model, batch)
        self.losses.append(value.detach())
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)


class _Pieces:
    """The micro-batches of some ranks, rank after rank in each step, torch seeded for each by its place.

    So augmentation and dropout draw the same for a piece, whoever takes it. ``together``: one micro-batch
    of all ranks at once, as dp takes them.
    """

    warm = 0

    def __init__(
        self, sources: dict[int, Batches], accumulation: int, seed: int, *, together: bool = False
    ) -> None:
        self._pieces = self._endless(sources, accumulation, seed, together)

    def next(self) -> Any:
        """The next piece."""
        return next(self._pieces)

    def _endless(
        self, sources: dict[int, Batches], accumulation: int, seed: int, together: bool
    ) -> Iterator[Any]:
        step = 0
        while True:
            if together:
                for micro_batch in range(accumulation):
                    yield joined([self._read(sources, seed, step, r, micro_batch) for r in sources])
            else:
                for rank in sources:
                    for micro_batch in range(accumulation):
                        yield self._read(sources, seed, step, rank, micro_batch)
            step += 1

    def _read(self, sources: dict[int, Batches], seed: int, step: int, rank: int, micro_batch: int) -> Any:
        place = (((seed * 1_009 + step) * 1_000_003 + rank) * 1_009 + micro_batch) % _SEEDS
        torch.manual_seed(place)
        batch = sources[rank].next()
        torch.manual_seed(place)
        return batch


def loss_parity(
    config: Configuration,
    workload: Workload,
    bench: Bench,
    team: Team,
    kept: Kept,
    *,
    step_s: float | None,
    max_seconds: float,
) -> tuple[LossParity | None, str | None]:
    """Train anew, on all ranks under the strategy and on the leader alone; or why that was not possible.

    ``step_s`` is the step of one device at its own batch, None where the model does not fit on one. The
    lane's weights are those of a new model afterwards. A collective call.
    """
    if step_s is None:
        return None, "the model does not fit on one device"
    assert bench.real is not None
    pieces = team.size * config.setting.gradient_accumulation
    share = MAX_SHARE * max_seconds
    steps = max(LEAST_STEPS, min(STEPS, int(share / (pieces * step_s))))
    with own_generators(bench.device):
        initial, alone = (_new_model(config, workload, kept) for _ in range(2))
        may_differ = _may_differ(initial, config.setting)
        failure: Exception | None = None
        reference = _Steps([], [])
        try:
            if team.leads:
                reference = _reference(config, workload, alone, team.size, steps, bench.device)
        except Exception as error:
            failure = error
        failures = team.gather(describe(failure) if failure else None)
        if failures[0]:
            return None, f"one device could not take the samples of all: {failures[0]}"
        losses, gradient = _strategy(config, workload, initial, bench, team, steps)
    return (
        LossParity(
            samples_per_step=config.global_batch_size,
            losses=_finite(losses),
            reference_losses=_finite(team.gather(reference.losses)[0]),
            gradient_difference=_difference(gradient, reference.gradient),
            may_differ=may_differ,
        ),
        None,
    )


def gradients(module: nn.Module) -> Iterator[torch.Tensor]:
    """Of each trained parameter; zeros where it has none."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            yield (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).detach()


def _reference(
    config: Configuration,
    workload: Workload,
    module: nn.Module,
    world_size: int,
    steps: int,
    device: torch.device,
) -> _Steps:
    """One device that takes the pieces of all ranks; neither compiled nor checkpointed."""
    accumulation = config.setting.gradient_accumulation
    sources = {rank: _source(config, workload, rank, device) for rank in range(world_size)}
    setting = config.setting.model_copy(update={"gradient_accumulation": world_size * accumulation})
    pieces = _Pieces(sources, accumulation, config.seed)
    return _run(config, workload, module.to(device), pieces, setting, device, steps, keep=True)


def _strategy(
    config: Configuration,
    workload: Workload,
    initial: nn.Module,
    bench: Bench,
    team: Team,
    steps: int,
) -> tuple[list[float], list[torch.Tensor]]:
    """The measured lane's module with new weights and a new optimizer; the gradient is the leader's."""
    assert bench.real is not None
    device, together = bench.device, config.setting.strategy == "dp"
    copy_weights(initial, bench.real.module)
    ranks = range(team.size) if together else [team.rank]
    mine: _Steps | None = None
    if team.leads or not together:
        sources = {rank: _source(config, workload, rank, device) for rank in ranks}
        pieces = _Pieces(
            sources,
            config.setting.gradient_accumulation,
            config.seed,
            together=together,
        )
        mine = _run(
            config,
            workload,
            bench.real.module,
            pieces,
            config.setting,
            device,
            steps,
            keep=team.leads,
            autocast=bench.real.autocast,
        )
    every = [losses for losses in team.gather(mine.losses if mine else None) if losses is not None]
    losses = [sum(of_ranks) / len(every) for of_ranks in zip(*every, strict=True)]
    return losses, mine.gradient if mine else []


def _run(
    config: Configuration,
    workload: Workload,
    module: nn.Module,
    pieces: Batches,
    setting: Setting,
    device: torch.device,
    steps: int,
    *,
    keep: bool,
    autocast: bool = True,
) -> _Steps:
    """Losses of every step, and where it is to ``keep`` the first gradient."""
    recorded, gradient = _Recorded(workload), list[torch.Tensor]()
    optimizer = make_optimizer(workload, config.optimizer, module)
    lane = Lane(module, optimizer, recorded, pieces, setting, device, autocast=autocast)

    def look(*_: Any) -> None:  # when the gradients are averaged, and no longer scaled as fp16 needs it
        for mine in gradients(module):
            whole = gathered(mine, keep=keep)
            if keep:
                gradient.append(whole.to("cpu", copy=True))

    hook = optimizer.register_step_pre_hook(look)
    lane.step()
    hook.remove()
    for _ in range(steps - 1):
        lane.step()
    losses = torch.stack([loss.float() for loss in recorded.losses]).view(steps, -1)
    return _Steps([float(loss) for loss in losses.mean(dim=1)], gradient)


def _difference(gradient: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> float | None:
    """|gradient - reference| / |reference|, Euclidean norms; None where that is no number."""
    if len(gradient) != len(reference):  # fp16 skipped one's step
        return None
    apart = length = 0.0
    for mine, other in zip(gradient, reference, strict=True):
        apart += float((mine.double() - other).square().sum())
        length += float(other.double().square().sum())
    found = math.sqrt(apart / length) if length else math.nan
    return found if math.isfinite(found) else None


def _finite(losses: Sequence[float]) -> tuple[float | None, ...]:
    """JSON has no other numbers."""
    return tuple(loss if math.isfinite(loss) else None for loss in losses)


def _new_model(config: Configuration, workload: Workload, kept: Kept) -> nn.Module:
    return kept.model(workload, config.workload.model_dump_json(), config.seed).train()


def _source(config: Configuration, workload: Workload, rank: int, device: torch.device) -> Batches:
    """The rank's batches, read in this process: a loader's own processes would draw otherwise."""
    here = config.model_copy(update={"setting": config.setting.model_copy(update={"workers": 0})})
    return make_batches(workload, here, config.batch_size, rank, device)


def _may_differ(model: nn.Module, setting: Setting) -> tuple[str, ...]:
    reasons = []
    drops = any(isinstance(each, nn.modules.dropout._DropoutNd) and each.p > 0 for each in model.modules())
    if drops and (setting.strategy == "dp" or setting.compile):
        what = "compiled code" if setting.compile else "each device of dp"
        reasons.append(f"{what} draws dropout's masks anew")
    if any(isinstance(each, nn.SyncBatchNorm) for each in model.modules()):
        reasons.append("SyncBatchNorm takes its statistics over all devices")
    return tuple(reasons)


@contextmanager
def own_generators(device: torch.device) -> Iterator[None]:
    """Leave torch's generators as they were."""
    devices: Sequence[torch.device] = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield
