"""The result of a trial of steps when its rounds are done, from what they and the ranks brought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.records.measurements import StepsResult
from raybench.records.requests import StepsRequest, Variant
from raybench.worker.memory import all_known
from raybench.worker.steps.rank_report import (
    StepsRankReport,
    energy_of_a_plain_step,
    energy_of_a_step,
    step_counts,
)
from raybench.worker.steps.rounds import LoopResult
from raybench.worker.strategies.ddp_report import DDPReport


@dataclass(frozen=True)
class Seconds:
    """How long a trial took until its rounds began."""

    setup: float
    warmup: float


def steps_result(
    request: StepsRequest,
    loop: LoopResult,
    reports: Sequence[StepsRankReport],
    seconds: Seconds,
    *,
    warmup_steps: int,
    leader_peaks: Sequence[int],
    memory_limits: tuple[int, ...] | None,
    missing: dict[Variant, str],
    ddp: DDPReport | None,
    num_parameters: int | None,
    flops_per_step: float | None,
    epoch_samples: int | None,
    tells_utilization: bool,
) -> StepsResult:
    """What the rounds brought; ``leader_peaks`` are of dp's devices, in place of the ranks' own peaks."""
    config, counts = request.config, step_counts(request, reports)
    peaks: Sequence[int | None] = leader_peaks or [report.memory.torch for report in reports]
    return StepsResult(
        rounds=tuple(loop.rounds),
        stopped_by=loop.stopped_by,
        batch_size=config.batch_size,
        global_batch_size=config.global_batch_size,
        samples_per_step=counts.samples,
        tokens_per_step=counts.tokens,
        versus_samples_per_step=counts.versus_samples,
        epoch_samples=epoch_samples,
        warmup_steps=warmup_steps,
        setup_s=seconds.setup,
        warmup_s=seconds.warmup,
        measure_s=loop.seconds,
        missing=dict(missing),
        loss=loop.loss,
        hosts=loop.hosts,
        host_cores=loop.host_cores,
        other_programs=loop.other_programs,
        flops_per_step=flops_per_step,
        peak_memory_bytes=all_known(peaks),
        device_memory_bytes=all_known([report.memory.device for report in reports]),
        memory_limit_bytes=memory_limits,
        device_utilization=tuple(report.utilization for report in reports) if tells_utilization else None,
        energy_joules=energy_of_a_step(reports, loop.measured),
        plain_energy_joules=energy_of_a_plain_step(reports),
        bucket_bytes=ddp.bucket_bytes if ddp else (),
        num_parameters=num_parameters,
        gradient_bytes=ddp.gradient_bytes if ddp else None,
        ddp_logger=ddp.logger_times_s if ddp else None,
    )
