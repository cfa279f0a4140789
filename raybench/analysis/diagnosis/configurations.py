"""Each configuration's status, where its time goes, and which measured change of one knob helps it most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.estimates.efficiency import Scaling, Status
from raybench.analysis.estimates.statistics import Estimate, unpaired_ratio
from raybench.analysis.estimates.waterfall import Waterfall
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.same_setting import one_of_each
from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue


@dataclass(frozen=True)
class Change:
    """Another measured configuration that differs in one knob, scales better and is faster.

    Both beyond the intervals: a slower model scales better too. The efficiency by search.minimum_gain at
    least.
    """

    knob: str
    value: KnobValue
    label: str  # of the other configuration
    efficiency: Estimate
    speedup: Estimate
    efficiency_ratio: Estimate
    throughput_ratio: Estimate


@dataclass(frozen=True)
class DiagnosedConfiguration:
    """One setting on several devices."""

    record: TrialRecord
    label: str
    scaling: Scaling
    waterfall: Waterfall | None
    changes: tuple[Change, ...]  # one for each knob that helps, the most helpful first
    num_tried: int  # measured configurations that differ in one knob

    @property
    def status(self) -> Status | None:
        """excellent, good, poor or negative; None without a baseline."""
        return self.scaling.status


def diagnose_configurations(results: MeasuredStudy) -> tuple[DiagnosedConfiguration, ...]:
    """Every setting, variables and placement at the headline's world size, best efficiency first.

    A trial of the scaling curve, which has all variants, stands before one of the search.
    """
    at = results.headline.config.world_size if results.headline else 0
    there = [record for record in results.tried if record.config.world_size == at > 1]
    distinct = one_of_each(there, lambda one, other: not one.differences(other))
    every = [_configuration(results, record, distinct) for record in distinct]
    return tuple(sorted(every, key=_efficiency, reverse=True))


def _efficiency(each: DiagnosedConfiguration) -> float:
    return each.scaling.efficiency.value if each.scaling.efficiency else 0.0


def _configuration(
    results: MeasuredStudy, record: TrialRecord, distinct: Sequence[TrialRecord]
) -> DiagnosedConfiguration:
    mine = results.scaling(record)
    best: dict[str, Change] = {}
    neighbours = 0
    for other in distinct:
        difference, theirs = other.config.differences(record.config), results.scaling(other)
        if len(difference) != 1:
            continue
        neighbours += 1
        if mine.efficiency is None or theirs.efficiency is None or theirs.speedup is None:
            continue
        ratio = unpaired_ratio(theirs.efficiency, mine.efficiency)
        ((knob, value),) = difference.items()
        faster = unpaired_ratio(theirs.throughput_samples_per_s, mine.throughput_samples_per_s)
        least = 1 + results.study.search.minimum_gain
        helps = min(ratio.low, faster.low) > 1 and ratio.value >= least
        if helps and (knob not in best or ratio.value > best[knob].efficiency_ratio.value):
            label = results.label(other)
            best[knob] = Change(knob, value, label, theirs.efficiency, theirs.speedup, ratio, faster)
    return DiagnosedConfiguration(
        record=record,
        label=results.label(record),
        scaling=mine,
        waterfall=results.waterfalls[record.trial_id],
        changes=tuple(sorted(best.values(), key=lambda each: -each.efficiency_ratio.value)),
        num_tried=neighbours,
    )
