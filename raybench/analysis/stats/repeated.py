"""Trials that were repeated: in several starts of the workers, or again, as measurements disagreed.

This is the one place where they become one point. ``one_of_starts`` takes the trial that speaks for all of
its starts, and the functions below give its estimates over them; of what was measured again the last speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from raybench.analysis.stats.efficiency import Scaling, scaling, status
from raybench.analysis.stats.statistics import Estimate, mean_over_starts, over_starts
from raybench.analysis.stats.waterfall import Parts, Waterfall, waterfall
from raybench.records.record import TrialRecord

MOST_AGAIN = 2  # times that one trial of the curve is measured again, as measurements disagree


def same_but_for_start(one: TrialRecord, other: TrialRecord) -> bool:
    """Whether the two ask the same of different starts."""
    mine, theirs = one.request, other.request
    if mine.kind != "steps" or theirs.kind != "steps" or mine.start == theirs.start:
        return False
    named = ("role", "variants", "anchor", "config", "visit")
    return all(getattr(mine, name) == getattr(theirs, name) for name in named)


def starts_of(record: TrialRecord, others: Iterable[TrialRecord] = ()) -> tuple[TrialRecord, ...]:
    """``record``, then the complete records among ``others`` of the same trial in further starts."""
    further = (other for other in others if other.steps is not None and same_but_for_start(record, other))
    return record, *further


def times_before(record: TrialRecord) -> int:
    """How often the same was measured before."""
    return record.request.visit if record.request.kind == "steps" else 0


def same_but_for_again(one: TrialRecord, other: TrialRecord) -> bool:
    """Whether one of the two measures the other again."""
    if times_before(one) == times_before(other):
        return False
    mine, theirs = one.request, other.request
    if mine.kind != "steps" or theirs.kind != "steps":
        return False
    return all(getattr(mine, name) == getattr(theirs, name) for name in ("role", "start", "anchor", "config"))


def _same_trial(one: TrialRecord, other: TrialRecord) -> bool:
    return same_but_for_start(one, other) or same_but_for_again(one, other)


def one_of_starts(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """One record for each trial, in its first one's place: of its starts the first that is complete.

    Of one that was measured again the last that is complete.
    """
    records = list(records)
    asked = {(each.request.start, each.request.visit) for each in records if each.request.kind == "steps"}
    if len(asked) < 2:
        return records
    kept: list[TrialRecord] = []
    places: dict[Hashable, list[int]] = {}  # of the trials that ask one thing
    for record in records:
        config, request = record.config, record.request
        alike = places.setdefault((config.key(ignore=config.ANY_SIZE), config.world_size, request.role), [])
        place = next((each for each in alike if _same_trial(record, kept[each])), None)
        if place is None:
            alike.append(len(kept))
            kept.append(record)
        elif record.state == "complete" and (
            kept[place].state != "complete" or times_before(record) > times_before(kept[place])
        ):
            kept[place] = record
    return kept


def without_superseded(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """``records`` but those that were measured again, and their repeats but the last complete one.

    Further starts of the workers stay.
    """
    listed = list(records)
    if not any(times_before(each) for each in listed):
        return listed
    spoken = {each.trial_id for each in one_of_starts(listed)}
    again = [each for each in listed if times_before(each)]
    return [
        each
        for each in listed
        if each.trial_id in spoken
        or not (times_before(each) or any(same_but_for_again(each, repeat) for repeat in again))
    ]


def scaling_over_starts(record: TrialRecord, others: Sequence[TrialRecord] = ()) -> Scaling:
    """How ``record`` scales, over all of its starts among ``others``, where its baseline may be too.

    What a start did not give (a baseline) is of those that gave it. Raises as ``scaling``.
    """
    every = [scaling(each, others) for each in starts_of(record, others)]
    if len(every) == 1:
        return every[0]
    baseline = next((each.baseline for each in every if each.baseline), None)
    size = baseline.world_size if baseline else None
    based = [each for each in every if each.baseline and each.baseline.world_size == size]
    if baseline is not None:
        steps_s = [each.baseline.step_time_s for each in based if each.baseline]
        baseline = replace(baseline, step_time_s=over_starts(steps_s))
    speedup = _known(based, lambda each: each.speedup)
    efficiency = _known(based, lambda each: each.efficiency)
    return Scaling(
        step_time_s=over_starts([each.step_time_s for each in every]),
        throughput_samples_per_s=over_starts([each.throughput_samples_per_s for each in every]),
        throughput_tokens_per_s=_known(every, lambda each: each.throughput_tokens_per_s),
        baseline=baseline,
        speedup=speedup,
        efficiency=efficiency,
        status=status(speedup, efficiency),
    )


def _known(every: Sequence[Scaling], part: Callable[[Scaling], Estimate | None]) -> Estimate | None:
    known = [estimate for each in every if (estimate := part(each)) is not None]
    return over_starts(known) if known else None


def waterfall_over_starts(record: TrialRecord, others: Sequence[TrialRecord] = ()) -> Waterfall | None:
    """The waterfall of ``record`` over all of its starts among ``others``; None where ``waterfall`` is.

    Times are shares of their start's step; the mean share is of the step over all starts. So the parts still
    add up to the step time. Starts that were taken apart otherwise (a variant was missing) are left out of
    the parts, not of the step time. Notes and DDP's logger are the first start's.
    """
    first, *further = (waterfall(each) for each in starts_of(record, others))
    if first is None or not further:
        return first
    names = list(first.parts.present())
    alike = [first, *(each for each in further if each and list(each.parts.present()) == names)]
    step_s = scaling_over_starts(record, others).step_time_s
    parts = {name: _time([each.parts.present()[name] for each in alike], alike, step_s) for name in names}
    found: dict[str, Any] = {"step_time_s": step_s, "parts": Parts(**parts)}
    for name, value in vars(first).items():
        values = [getattr(each, name) for each in alike]
        if name in found or not isinstance(value, Estimate) or None in values:
            continue
        is_time = name.endswith("_s") and not name.endswith("_per_s")
        found[name] = _time(values, alike, step_s) if is_time else mean_over_starts(values)
    return replace(first, **found)


def _time(values: Sequence[Estimate], alike: Sequence[Waterfall], step_s: Estimate) -> Estimate:
    """A time in s, one value a start: the mean of its shares of their steps, of the step over all starts."""
    shares = [value.scaled(1 / each.step_time_s.value) for value, each in zip(values, alike, strict=True)]
    return mean_over_starts(shares).scaled(step_s.value)
