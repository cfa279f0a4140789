"""Each configuration's status, where its time goes, and which measured change of one knob helps it most.

Many trials are compared, each measured minutes from the others, and the best are named: intervals here are
simultaneous, so that what is best by chance alone is named in 5% of studies at most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from raybench.analysis.diagnosis.neighbours import Neighbours
from raybench.analysis.estimates.efficiency import Scaling, Status
from raybench.analysis.estimates.simultaneous import simultaneous, simultaneous_ratio
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.estimates.waterfall import Waterfall
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.same_setting import between_starts, change_key, one_of_each
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
    distinct = one_of_each(there, change_key)
    neighbours = Neighbours(distinct)
    num_pairs = neighbours.num_pairs
    every = [_configuration(results, each, neighbours, len(distinct), num_pairs) for each in distinct]
    return tuple(sorted(every, key=_efficiency, reverse=True))


def _efficiency(each: DiagnosedConfiguration) -> float:
    return each.scaling.efficiency.value if each.scaling.efficiency else 0.0


def _configuration(
    results: MeasuredStudy, record: TrialRecord, neighbours: Neighbours, among: int, num_pairs: int
) -> DiagnosedConfiguration:
    mine, least = results.scaling(record), 1 + results.study.search.minimum_gain
    best: dict[str, Change] = {}
    num_tried = 0
    for name, other in neighbours.of(record):
        num_tried += 1
        theirs = results.scaling(other)
        if mine.efficiency is None or theirs.efficiency is None or theirs.speedup is None:
            continue
        rates = theirs.throughput_samples_per_s, mine.throughput_samples_per_s
        gain = theirs.efficiency.value / mine.efficiency.value
        if gain < least or rates[0].value <= rates[1].value:
            continue  # of most pairs the values say it
        if name in best and gain <= best[name].efficiency_ratio.value:
            continue
        apart = between_starts(other.config, record.config)
        ratio = simultaneous_ratio(theirs.efficiency, mine.efficiency, num_pairs, apart)
        faster = simultaneous_ratio(*rates, num_pairs, apart)
        if min(ratio.low, faster.low) > 1:
            ((knob, value),) = other.config.differences(record.config).items()
            label = results.label(other)
            efficiency = simultaneous(theirs.efficiency, among)
            speedup = simultaneous(theirs.speedup, among)
            best[name] = Change(knob, value, label, efficiency, speedup, ratio, faster)
    return DiagnosedConfiguration(
        record=record,
        label=results.label(record),
        scaling=_one_of(results.scaling(record), among),
        waterfall=results.waterfalls[record.trial_id],
        changes=tuple(sorted(best.values(), key=lambda each: -each.efficiency_ratio.value)),
        num_tried=num_tried,
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
