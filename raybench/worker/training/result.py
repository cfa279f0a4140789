"""The result of a training trial, put together from its epochs and what the ranks know of themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch.distributed as dist

from raybench.records.requests import TrainingRequest
from raybench.records.trainings import Epoch, Pruned, TrainingResult
from raybench.worker.communicators import Team
from raybench.worker.devices.base import MemoryPeak
from raybench.worker.memory import all_known
from raybench.worker.strategies.stepper import Stepper

ONE_COPY = {  # strategies of which no weight is held twice
    "fsdp": "each rank holds its own shard, no weight is held twice",
    "dp": "the leader holds the weights, the other devices get them in every step",
}


@dataclass(frozen=True)
class TrainingRankReport:
    """What one rank knows of itself when all epochs are done."""

    memory: MemoryPeak
    driven: tuple[int, ...]  # peaks of the devices that dp drives from this process, as torch counts them
    utilization: float | None

    @classmethod
    def of(
        cls, peaks: Sequence[MemoryPeak], driven: Sequence[Sequence[int]], utilization: float | None
    ) -> TrainingRankReport:
        """From the peaks of every epoch."""
        highest = MemoryPeak(_highest(peak.torch for peak in peaks), _highest(peak.device for peak in peaks))
        return cls(highest, tuple(max(each) for each in zip(*driven, strict=True)), utilization)


def training_result(
    request: TrainingRequest,
    team: Team,
    stepper: Stepper,
    epochs: Sequence[Epoch],
    report: TrainingRankReport,
    *,
    setup_s: float,
    resumed_after: int,
    stopped_by: Pruned | None,
    peak_learning_rate: float,
    missing: dict[str, str],
) -> TrainingResult:
    """The same on every rank; ``report`` is this one's. A collective call.

    ``team``: those who trained. Under dp that is the leader: of the other devices only it tells, what torch
    counts.
    """
    reports: list[TrainingRankReport] = team.gather(report)
    strategy, sleeping = request.config.setting.strategy, request.config.world_size - team.size
    if request.config.world_size > 1 and strategy in ONE_COPY:
        missing = missing | {"weights_difference": ONE_COPY[strategy]}
    difference = None if strategy in ONE_COPY or team.size == 1 else _weights_difference(stepper, team)
    if difference is not None and not math.isfinite(difference):
        difference, missing = None, missing | {"weights_difference": "a weight is not finite"}
    in_all = None if sleeping else all_known([rank.memory.device for rank in reports])
    return TrainingResult(
        epochs=tuple(epochs),
        global_batch_size=request.config.global_batch_size,
        reference_batch=request.reference_batch,
        peak_learning_rate=peak_learning_rate,
        setup_s=setup_s,
        resumed_after=resumed_after,
        stopped_by=stopped_by,
        peak_memory_bytes=reports[0].driven or all_known([rank.memory.torch for rank in reports]),
        device_memory_bytes=in_all,
        device_utilization=(*(rank.utilization for rank in reports), *(None,) * sleeping),
        weights_difference=difference,
        missing=missing,
    )


def _weights_difference(stepper: Stepper, team: Team) -> float:
    """The largest difference of one weight between two ranks; not finite where a weight is not."""
    differences = [0.0]
    for parameter in stepper.module.parameters():
        high, low = parameter.detach().clone(), parameter.detach().clone()
        dist.all_reduce(high, dist.ReduceOp.MAX, group=team.data)
        dist.all_reduce(low, dist.ReduceOp.MIN, group=team.data)
        if high.numel():
            differences.append(float((high - low).abs().max()))
    return sum(differences) if any(map(math.isnan, differences)) else max(differences)


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
