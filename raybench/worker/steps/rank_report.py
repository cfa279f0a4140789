"""What each rank knows beside step times when the rounds are done, and what all of them together say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.records.requests import StepsRequest, Variant
from raybench.worker.devices.base import MemoryPeak
from raybench.worker.steps.meters import Energy
from raybench.worker.strategies.models import StrategyModels
from raybench.workloads import Workload
from raybench.workloads.batch_counts import samples_of, tokens_of


@dataclass(frozen=True)
class StepsRankReport:
    """What one rank knows of itself when the rounds are done."""

    memory: MemoryPeak
    utilization: float | None
    energy: dict[Variant, Energy]
    num_recompiled: int  # graphs, within the rounds
    samples: int  # of a micro-batch
    tokens: float | None


@dataclass(frozen=True)
class StepCounts:
    """Samples and tokens of one optimizer step of all ranks."""

    samples: float
    tokens: float | None
    versus_samples: float | None  # with the other setting


def count(request: StepsRequest, workload: Workload, models: StrategyModels) -> tuple[int, float | None]:
    """Samples and tokens of a micro-batch of this rank."""
    batch = models.batches.next()
    samples = samples_of(workload, batch, request.config.batch_size)
    return samples, tokens_of(workload, batch, samples)


def step_counts(request: StepsRequest, reports: Sequence[StepsRankReport]) -> StepCounts:
    """Samples and tokens of a step of all ranks; no tokens where a rank counts none."""
    config, versus = request.config, request.versus
    accumulation = config.setting.gradient_accumulation
    samples = sum(report.samples for report in reports)
    tokens = [report.tokens for report in reports if report.tokens is not None]
    versus_samples = None
    if versus is not None:
        larger = config.micro_batch(versus) / config.batch_size
        versus_samples = samples * larger * versus.gradient_accumulation
    return StepCounts(
        samples=float(samples * accumulation),
        tokens=float(sum(tokens) * accumulation) if len(tokens) == len(reports) else None,
        versus_samples=versus_samples,
    )


def energy_of_a_step(reports: Sequence[StepsRankReport], measured: Variant) -> float | None:
    """Of all devices, for one step of what is measured, in joules; None where a device does not tell."""
    if measured == "plain":
        return energy_of_a_plain_step(reports)
    found = [report.energy[measured] for report in reports if measured in report.energy]
    return sum(each.joules for each in found) / found[0].steps if len(found) == len(reports) else None


def energy_of_a_plain_step(reports: Sequence[StepsRankReport]) -> float | None:
    """Of one device alone, the mean over the devices that had their turn, in joules."""
    found = [report.energy["plain"] for report in reports if "plain" in report.energy]
    return sum(each.joules for each in found) / sum(each.steps for each in found) if found else None
