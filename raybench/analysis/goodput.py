"""Throughput and what of it is useful: how much a sample of a larger batch teaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.estimates.noise_scale import efficiency_over_runs
from raybench.analysis.estimates.repeated import one_of_starts, scaling_over_starts
from raybench.analysis.estimates.statistics import Estimate, product
from raybench.analysis.same_setting import Related, of_first_role
from raybench.records.record import TrialRecord
from raybench.records.trainings import Epoch


@dataclass(frozen=True)
class Goodput:
    """Throughput and what of it is useful, of one measured trial."""

    record: TrialRecord
    throughput_samples_per_s: Estimate
    statistical_efficiency: Estimate  # as sure as the noise scale is known
    goodput_samples_per_s: Estimate  # the uncertainty of both is in it


def goodput_of(
    records: Sequence[TrialRecord], reference: int, runs: Sequence[Sequence[Epoch]]
) -> list[Goodput]:
    """Of every trial of the curve, by the epochs of the ``runs`` that measured a noise scale."""
    measured = [record for record in one_of_starts(records) if record.steps is not None]
    goodputs, related, known = [], Related(records), dict[int, Estimate | None]()
    for record in of_first_role(measured, "scaling", "search") if runs else ():
        batch = record.config.global_batch_size
        if batch not in known:
            known[batch] = efficiency_over_runs(runs, reference, batch)
        efficiency = known[batch]
        if efficiency is None:
            continue
        rate = scaling_over_starts(record, related.of(record)).throughput_samples_per_s
        goodputs.append(Goodput(record, rate, efficiency, product(rate, efficiency)))
    return sorted(goodputs, key=lambda each: (each.record.config.world_size, each.record.config.batch_size))
