"""Throughput and what of it is useful: how much a sample of a larger batch teaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from raybench.analysis.estimates.noise_scale import statistical_efficiency
from raybench.analysis.estimates.repeated import one_of_starts, scaling_over_starts
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.same_setting import Related, of_first_role
from raybench.records.record import TrialRecord


@dataclass(frozen=True)
class Goodput:
    """Throughput and what of it is useful, of one measured trial."""

    record: TrialRecord
    throughput_samples_per_s: Estimate
    statistical_efficiency: float
    goodput_samples_per_s: Estimate  # interval of the throughput only


def goodput_of(records: Sequence[TrialRecord], reference: int, scales: list[list[float]]) -> list[Goodput]:
    """Of every trial of the curve; the efficiency is the mean over epochs, and over runs."""
    measured = [record for record in one_of_starts(records) if record.steps is not None]
    goodputs, related = [], Related(records)
    for record in of_first_role(measured, "scaling", "search") if scales else ():
        batch = record.config.global_batch_size
        efficiency = fmean(
            fmean(statistical_efficiency(scale, reference, batch) for scale in run) for run in scales
        )
        rate = scaling_over_starts(record, related.of(record)).throughput_samples_per_s
        goodputs.append(Goodput(record, rate, efficiency, rate.scaled(efficiency)))
    return sorted(goodputs, key=lambda each: (each.record.config.world_size, each.record.config.batch_size))
