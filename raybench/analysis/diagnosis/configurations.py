"""Each configuration's status, where its time goes, and the nearest measured setting that is better.

Many trials are compared, each measured minutes from the others, and the best are named: intervals here are
simultaneous, so that what is best by chance alone is named in 5% of studies at most. A status is a word about
one setting, and the same wherever it stands: by its own interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from raybench.analysis.diagnosis.findings import Finding
from raybench.analysis.diagnosis.rivals import Rivals
from raybench.analysis.estimates.efficiency import Scaling, Status
from raybench.analysis.estimates.simultaneous import simultaneous, simultaneous_ratio
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.estimates.waterfall import Waterfall
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.same_setting import between_starts, one_of_each
from raybench.analysis.speaking import InSameRounds, rate_ratio
from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue

MANY = 300  # settings, that are all compared with all
FEW = 40  # of more than those, at either end, that are


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
    own_efficiency: Estimate  # the same with the interval that it has by itself, as in the tables of trials
    efficiency_ratio: Estimate
    throughput_ratio: Estimate
    # the same by two trials apart, which is what a test in the same rounds is held against: not by itself
    predicted_ratio: Estimate


@dataclass(frozen=True)
class DiagnosedConfiguration:
    """One setting on several devices."""

    record: TrialRecord
    label: str
    scaling: Scaling  # intervals simultaneous over the configurations; the status is that of its own
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


@dataclass(frozen=True)
class _Pairs:
    """Settings that are compared in pairs."""

    results: MeasuredStudy
    in_same_rounds: InSameRounds
    number: int  # of the settings


def compared(results: MeasuredStudy) -> list[TrialRecord]:
    """Every setting, variables and placement at the headline's world size, one trial each.

    A trial of the scaling curve, which has all variants, stands before one of the search.
    """
    at = results.headline.config.world_size if results.headline else 0
    there = [record for record in results.tried if record.config.world_size == at > 1]
    return one_of_each(there, lambda config: config.key(ignore=config.ANY_WORKLOAD))


def better_settings(
    results: MeasuredStudy, in_same_rounds: InSameRounds | None = None
) -> dict[str, tuple[Change, ...]]:
    """Of each of ``compared``, by trial id: the measured settings that are better, the nearest first.

    Every pair of many settings would take hours: of more than ``MANY`` the headline, the most and the least
    efficient are compared with all others, and the rest are not.
    """
    distinct = sorted(compared(results), key=lambda record: -_efficiency_of(results, record))
    advised, number = distinct, len(distinct)
    if number > MANY:
        headline = [record for record in distinct if record is results.headline]
        advised = [*headline, *distinct[:FEW], *distinct[-FEW:]]
    pairs = _Pairs(results, in_same_rounds or InSameRounds(results.buckets), number)
    rivals = Rivals(results, distinct, number * (number - 1) // 2, pairs.in_same_rounds)
    found = dict.fromkeys((record.trial_id for record in distinct), tuple[Change, ...]())
    return found | {each.trial_id: _better(pairs, each, rivals) for each in advised}


def not_compared_words(number: int) -> str:
    """What is to be said where of so many settings not all were compared with all; else empty."""
    if number <= MANY:
        return ""
    return (
        f"What is better was looked for among all {number:,} settings for the headline, the {FEW} most and "
        f"the {FEW} least efficient; the other settings were not compared with each other."
    )


def _efficiency_of(results: MeasuredStudy, record: TrialRecord) -> float:
    efficiency = results.scaling(record).efficiency
    return efficiency.value if efficiency else 0.0


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
    return each.scaling.efficiency.value if each.scaling.efficiency else 0.0


def _better(pairs: _Pairs, record: TrialRecord, rivals: Rivals) -> tuple[Change, ...]:
    """The settings that are better, as so many were compared in pairs; of each set of knobs the best."""
    changes = ((_change(pairs, record, other) for other in group) for group in rivals.ahead_of(record))
    found = [next(filter(None, group), None) for group in changes]
    nearest: dict[frozenset[str], Change] = {}
    for each in sorted(filter(None, found), key=lambda change: -change.efficiency_ratio.value):
        nearest.setdefault(frozenset(each.changes), each)
    return tuple(sorted(nearest.values(), key=lambda each: (len(each.changes), -each.efficiency_ratio.value)))


def _change(pairs: _Pairs, record: TrialRecord, other: TrialRecord) -> Change | None:
    """``other`` as a change of ``record``; None where it is not better beyond the intervals."""
    results, number = pairs.results, pairs.number
    mine, theirs = results.scaling(record), results.scaling(other)
    if mine.efficiency is None or theirs.efficiency is None or theirs.speedup is None:
        return None
    least = 1 + results.study.search.minimum_gain
    if theirs.efficiency.value < least * mine.efficiency.value:
        return None
    num_pairs = number * (number - 1) // 2
    apart = between_starts(other, record)
    ratio = simultaneous_ratio(theirs.efficiency, mine.efficiency, num_pairs, apart)
    if ratio.low <= 1:
        return None
    faster = rate_ratio(other, record, results.scalings, pairs.in_same_rounds, num_pairs).ratio
    if faster.low <= 1:
        return None
    no_rounds = InSameRounds(results.buckets)
    predicted = rate_ratio(other, record, results.own_scalings, no_rounds, num_pairs).ratio
    changes = other.config.differences(record.config)
    return Change(
        changes=changes,
        settings=changes | other.config.setting.differences(record.config.setting),
        label=results.label(other),
        trial_id=other.trial_id,
        efficiency=simultaneous(theirs.efficiency, number),
        speedup=simultaneous(theirs.speedup, number),
        own_efficiency=theirs.efficiency,
        efficiency_ratio=ratio,
        throughput_ratio=faster,
        predicted_ratio=predicted,
    )


def _one_of(scaling: Scaling, number: int) -> Scaling:
    """The same with intervals that hold for ``number`` of them at once."""
    return replace(
        scaling,
        throughput_samples_per_s=simultaneous(scaling.throughput_samples_per_s, number),
        speedup=scaling.speedup and simultaneous(scaling.speedup, number),
        efficiency=scaling.efficiency and simultaneous(scaling.efficiency, number),
    )
