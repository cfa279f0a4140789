"""Each configuration's status, where its time goes, and the nearest measured setting that is better.

Many trials are compared, each measured minutes from the others, and the best are named: intervals here are
simultaneous, so that what is best by chance alone is named in 5% of studies at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.diagnosis.findings import Finding
from raybench.analysis.diagnosis.neighbours import Neighbours
from raybench.analysis.estimates.efficiency import Scaling, Status
from raybench.analysis.estimates.simultaneous import simultaneous, simultaneous_ratio
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.estimates.waterfall import Waterfall
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.same_setting import between_starts, change_key, one_of_each
from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue

MOST_COMPARED = 500  # settings of which every one is compared with every other
NUM_BEST = 10  # of more: the most efficient ones, which each is compared with


@dataclass(frozen=True)
class Change:
    """Another measured configuration that scales better and is faster, whatever it differs in.

    Both beyond the intervals: a slower model scales better too. The efficiency by search.minimum_gain at
    least. The ratios' intervals are simultaneous over all pairs that are compared.
    """

    changes: Mapping[str, KnobValue]  # the knobs and variables in which it differs, with its values
    settings: Mapping[
        str, KnobValue
    ]  # the same to be set: with accumulation of the same passes the batch grows too
    label: str  # of the other configuration
    trial_id: str
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
    changes: tuple[Change, ...]  # the fewest knobs first, then the most gain; one for each set of knobs
    num_tried: int  # measured configurations beside it
    findings: tuple[Finding, ...]  # what explains the most time first

    @property
    def status(self) -> Status | None:
        """excellent, good, poor or negative; None without a baseline."""
        return self.scaling.status

    @property
    def nearest(self) -> tuple[Change, ...]:
        """The changes of the fewest knobs."""
        fewest = min((len(each.changes) for each in self.changes), default=0)
        return tuple(each for each in self.changes if len(each.changes) == fewest)


def compared(results: MeasuredStudy) -> list[TrialRecord]:
    """Every setting, variables and placement at the headline's world size, one trial each.

    A trial of the scaling curve, which has all variants, stands before one of the search.
    """
    at = results.headline.config.world_size if results.headline else 0
    there = [record for record in results.tried if record.config.world_size == at > 1]
    return one_of_each(there, change_key)


def better_settings(results: MeasuredStudy) -> dict[str, tuple[Change, ...]]:
    """Of each of ``compared``, by trial id: the measured settings that are better, the nearest first.

    Of very many settings each is compared with those that differ from it in one change, and with the most
    efficient ones.
    """
    distinct = compared(results)
    most_efficient = sorted(distinct, key=lambda record: -_known_efficiency(results.scaling(record)))
    neighbours = Neighbours(distinct) if len(distinct) > MOST_COMPARED else None
    found = {}
    for record in distinct:
        rivals = distinct
        if neighbours is not None:
            near = [other for _, other in neighbours.of(record)]
            rivals = list({each.trial_id: each for each in (*near, *most_efficient[:NUM_BEST])}.values())
        found[record.trial_id] = _better(results, record, rivals, len(distinct))
    return found


def diagnose_configurations(
    results: MeasuredStudy,
    better: Mapping[str, tuple[Change, ...]],
    findings: Mapping[str, tuple[Finding, ...]],
) -> tuple[DiagnosedConfiguration, ...]:
    """Every one of ``compared``, best efficiency first; ``better`` and ``findings`` are by trial id."""
    distinct = compared(results)
    every = [
        DiagnosedConfiguration(
            record=record,
            label=results.label(record),
            scaling=_one_of(results.scaling(record), len(distinct)),
            waterfall=results.waterfalls[record.trial_id],
            changes=better[record.trial_id],
            num_tried=len(distinct) - 1,
            findings=findings.get(record.trial_id, ()),
        )
        for record in distinct
    ]
    return tuple(sorted(every, key=_efficiency, reverse=True))


def _efficiency(each: DiagnosedConfiguration) -> float:
    return _known_efficiency(each.scaling)


def _known_efficiency(scaling: Scaling) -> float:
    return scaling.efficiency.value if scaling.efficiency else 0.0


def _better(
    results: MeasuredStudy, record: TrialRecord, rivals: Sequence[TrialRecord], number: int
) -> tuple[Change, ...]:
    num_pairs = number * (number - 1) // 2
    mine, least = results.scaling(record), 1 + results.study.search.minimum_gain
    if mine.efficiency is None:
        return ()
    floor, rate = mine.efficiency.value * least, mine.throughput_samples_per_s.value
    hopeful = []
    for other in rivals:  # of most pairs the values alone say that the other is no better
        theirs = results.scaling(other)
        efficiency = theirs.efficiency.value if theirs.efficiency else 0.0
        if other is not record and efficiency >= floor and theirs.throughput_samples_per_s.value > rate:
            hopeful.append((efficiency, other))
    nearest: dict[frozenset[str], Change] = {}
    for _, other in sorted(hopeful, key=lambda pair: -pair[0]):
        knobs = frozenset(other.config.differences(record.config))
        if knobs not in nearest and (change := _change(results, record, other, number, num_pairs)):
            nearest[knobs] = change
    return tuple(sorted(nearest.values(), key=lambda each: (len(each.changes), -each.efficiency_ratio.value)))


def _change(
    results: MeasuredStudy, record: TrialRecord, other: TrialRecord, number: int, num_pairs: int
) -> Change | None:
    """``other`` as a change of ``record``; None where it is not better beyond the intervals."""
    mine, theirs = results.scaling(record), results.scaling(other)
    if mine.efficiency is None or theirs.efficiency is None or theirs.speedup is None:
        return None
    rates = theirs.throughput_samples_per_s, mine.throughput_samples_per_s
    apart = between_starts(other.config, record.config)
    ratio = simultaneous_ratio(theirs.efficiency, mine.efficiency, num_pairs, apart)
    faster = simultaneous_ratio(*rates, num_pairs, apart)
    if min(ratio.low, faster.low) <= 1 or ratio.value < 1 + results.study.search.minimum_gain:
        return None
    changes = other.config.differences(record.config)
    return Change(
        changes=changes,
        settings=changes | other.config.setting.differences(record.config.setting),
        label=results.label(other),
        trial_id=other.trial_id,
        efficiency=simultaneous(theirs.efficiency, number),
        speedup=simultaneous(theirs.speedup, number),
        efficiency_ratio=ratio,
        throughput_ratio=faster,
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
