"""What a search found: how it went, its confirmations, the gain of the best setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis import choice
from raybench.analysis.attribution import Attribution
from raybench.analysis.choice import Best, is_default
from raybench.analysis.labels import difference_words
from raybench.analysis.load import LOADED, Load, load_of
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.objectives import MAXIMIZED, UNITS, Candidate
from raybench.analysis.reference import InSameRounds, rate_ratio
from raybench.analysis.stats.efficiency import Gain, gain, gain_of
from raybench.analysis.stats.statistics import BETWEEN_STARTS, simultaneous_ratio
from raybench.records.record import TrialRecord
from raybench.spec.study import Objective


@dataclass(frozen=True)
class Confirmation:
    """A winner, measured again against the default: in the same rounds, unless it needs other processes."""

    record: TrialRecord
    label: str
    gain: Gain
    paired: bool = True

    @property
    def load(self) -> Load | None:
        """What others took meanwhile, where it may be a tenth of a step and more; else None."""
        found = load_of(self.record)
        return found if found is not None and found.lost >= LOADED else None


def confirmations(base: MeasuredStudy, chosen: Sequence[Candidate]) -> list[Confirmation]:
    """In the same rounds as the default; of winners that need other processes by their curves."""
    least = base.study.search.minimum_gain
    among_chosen = {base.buckets.key(each.record.config) for each in chosen}
    anchored = {
        base.buckets.key(record.config): record
        for record in base.measured
        if record.request.kind == "steps"
        and record.request.anchor is not None
        and record.request.role != "verification"
        and record.steps is not None
        and "anchor" not in record.steps.missing
    }
    paired = [record for key, record in anchored.items() if key in among_chosen]
    apart = _in_other_processes(base, chosen)
    among = len(paired) + len(apart)
    found = [(record, gain(record, least, among), True) for record in paired]
    if base.headline is not None:
        default = base.scaling(base.headline).throughput_samples_per_s
        for record in apart:
            rate = base.scaling(record).throughput_samples_per_s
            ratio = simultaneous_ratio(rate, default, among, BETWEEN_STARTS)
            found.append((record, gain_of(ratio, least), False))
    return [
        Confirmation(record, difference_words(base.study, record.config), each, is_paired)
        for record, each, is_paired in found
    ]


def _in_other_processes(base: MeasuredStudy, chosen: Sequence[Candidate]) -> list[TrialRecord]:
    """The trials of the curve, at the target, of a search's winners whose variables are not the default's.

    They were measured after the search, so that the choice has no part in them. What a grid chooses by is all
    that there is of it: nothing confirms that.
    """
    headline = base.headline
    if base.study.search.method != "optuna" or headline is None or headline.request.role != "scaling":
        return []
    winners = [
        each.record for each in chosen if each.record.config.environment != headline.config.environment
    ]
    return [
        record
        for record in base.by_role("scaling")
        if record.config.world_size == headline.config.world_size
        and record.config.placement == headline.config.placement
        and any(record.config.same_setting(winner.config) for winner in winners)
    ]


def unconfirmed_gain(
    base: MeasuredStudy,
    best: Best | None,
    confirmed: Sequence[Confirmation],
    attributed: Attribution | None,
) -> Gain | None:
    """The best's samples/s over the default's, as one of all settings that were compared with it.

    None where the best is the default or was measured against it again, and where the default was not
    measured at that world size and place. It is the figure of the table of knobs, where the best is in it.
    """
    if best is None or best.is_default or confirmation_of(best, confirmed) is not None:
        return None
    record = base.reference(best.record)
    effects = (*attributed.singles, *attributed.together) if attributed else ()
    known = next((each.throughput_ratio for each in effects if each.record is record), None)
    if known is not None:
        return gain_of(known, base.study.search.minimum_gain)
    default = _default_beside(base, record)
    if default is None:
        return None
    among = max(best.num_suggestions - best.num_failed - 1, 1)
    found = rate_ratio(record, default, base.scalings, InSameRounds(base.buckets), among)
    return gain_of(found.ratio, base.study.search.minimum_gain)


def confirmation_of(best: Best, confirmed: Sequence[Confirmation]) -> Confirmation | None:
    """The best's own among several winners'."""
    return next((each for each in confirmed if each.record.config.same_setting(best.record.config)), None)


def _default_beside(base: MeasuredStudy, record: TrialRecord) -> TrialRecord | None:
    there = (
        each
        for each in base.tried
        if each.config.world_size == record.config.world_size
        and each.config.placement == record.config.placement
    )
    return next((each for each in there if is_default(base.study, each.config)), None)


@dataclass(frozen=True)
class HistoryPoint:
    """One suggestion; None where its trial has no value."""

    suggestion: int
    value: float | None
    best: float | None  # of this and those before


@dataclass(frozen=True)
class SearchHistory:
    """The suggestions in their order, by the objective in its unit."""

    objective: Objective
    unit: str
    points: tuple[HistoryPoint, ...]


def search_history(results: MeasuredStudy) -> SearchHistory | None:
    """The history of a search of at least two suggestions; None without one."""
    study = results.study
    tried = choice.suggestions(study, results.records, results.target_world_size)
    numbered = sorted(
        ((record.suggestion, record) for record in tried if record.suggestion is not None),
        key=lambda pair: pair[0],
    )
    if len(numbered) < 2 or tried[0].request.role != "search":
        return None
    objective = study.search.objectives[0]
    better = max if objective in MAXIMIZED else min
    points, best = [], None
    for number, record in numbered:
        value = None
        if record.steps is not None:
            scaled = results.own_scalings.get(record.trial_id)
            bearing = results.related.of(record) if scaled is None else ()
            values = choice.objective_values(study, record, bearing, scaled)
            value = values[0] if values else None
        if value is not None:
            best = value if best is None else better(best, value)
        points.append(HistoryPoint(number, value, best))
    if sum(point.value is not None for point in points) < 2:
        return None
    return SearchHistory(objective, UNITS[objective], tuple(points))
