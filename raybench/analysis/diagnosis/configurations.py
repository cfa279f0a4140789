"""Each configuration's status, where its time goes, and which measured change of one knob helps it most.

Many trials are compared, each measured minutes from the others, and the best are named: intervals here are
simultaneous, so that what is best by chance alone is named in 5% of studies at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raybench.analysis.estimates.efficiency import Scaling, Status
from raybench.analysis.estimates.simultaneous import simultaneous, simultaneous_ratio
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.estimates.waterfall import Waterfall
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.same_setting import between_starts, one_of_each
from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue


@dataclass(frozen=True)
class Change:
    """Another measured configuration that differs in one knob, scales better and is faster.

    Both beyond the intervals: a slower model scales better too. The efficiency by search.minimum_gain at
    least. The ratios' intervals are simultaneous over all pairs that are compared.
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
    scaling: Scaling  # intervals simultaneous over the configurations
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
    pairs = itertools.combinations(distinct, 2)
    num_pairs = sum(len(one.config.differences(other.config)) == 1 for one, other in pairs)
    every = [_configuration(results, record, distinct, num_pairs) for record in distinct]
    return tuple(sorted(every, key=_efficiency, reverse=True))


def _efficiency(each: DiagnosedConfiguration) -> float:
    return each.scaling.efficiency.value if each.scaling.efficiency else 0.0


def _configuration(
    results: MeasuredStudy, record: TrialRecord, distinct: Sequence[TrialRecord], num_pairs: int
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
        apart = between_starts(other.config, record.config)
        ratio = simultaneous_ratio(theirs.efficiency, mine.efficiency, num_pairs, apart)
        ((knob, value),) = difference.items()
        rates = theirs.throughput_samples_per_s, mine.throughput_samples_per_s
        faster = simultaneous_ratio(*rates, num_pairs, apart)
        least = 1 + results.study.search.minimum_gain
        helps = min(ratio.low, faster.low) > 1 and ratio.value >= least
        if helps and (knob not in best or ratio.value > best[knob].efficiency_ratio.value):
            label = results.label(other)
            efficiency = simultaneous(theirs.efficiency, len(distinct))
            speedup = simultaneous(theirs.speedup, len(distinct))
            best[knob] = Change(knob, value, label, efficiency, speedup, ratio, faster)
    return DiagnosedConfiguration(
        record=record,
        label=results.label(record),
        scaling=_one_of(results.scaling(record), len(distinct)),
        waterfall=results.waterfalls[record.trial_id],
        changes=tuple(sorted(best.values(), key=lambda each: -each.efficiency_ratio.value)),
        num_tried=neighbours,
    )


def _one_of(scaling: Scaling, number: int) -> Scaling:
    """The same with intervals that hold for ``number`` of them at once."""
    speedup, efficiency = scaling.speedup, scaling.efficiency
    return replace(
        scaling,
        throughput_samples_per_s=simultaneous(scaling.throughput_samples_per_s, number),
        speedup=speedup and simultaneous(speedup, number),
        efficiency=efficiency and simultaneous(efficiency, number),
    )
