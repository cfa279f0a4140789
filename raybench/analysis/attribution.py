"""How much each knob changes the scaling efficiency, one at a time and together, against the default.

An effect is a ratio of efficiencies of two trials: each is paired within its own rounds, the two are minutes
apart, so half-widths of logarithms add in squares; where variables of the processes differ, what starts
differ by is added. Throughputs that were measured in the same rounds, by a confirmation or a verification,
are compared by these. The largest of many is flattered by chance, so the effects of a study have
simultaneous intervals. Where knobs were changed together and each alone as well, the interaction is what is
left: together over the product of the single effects.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.choice import Best, default_placement, default_setting, is_default
from raybench.analysis.labels import changes_words, difference_words
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.reference import InSameRounds, between_starts, one_of_each, rate_ratio
from raybench.analysis.stats.statistics import (
    BETWEEN_STARTS,
    Estimate,
    of_log,
    ratio_of_starts,
    simultaneous,
    simultaneous_ratio,
    unpaired_ratio,
)
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.knobs import KnobValue

Factor = tuple[str, KnobValue]  # one change


@dataclass(frozen=True)
class Effect:
    """One setting beside the default: ratios, 1 is no change; intervals simultaneous over all effects."""

    changes: dict[str, KnobValue]  # knobs, and variables, that differ from the default
    label: str
    record: TrialRecord
    efficiency: Estimate  # its own
    efficiency_ratio: Estimate
    throughput_ratio: Estimate
    is_paired: bool  # the throughputs were measured in the same rounds
    interaction: Estimate | None  # of several changes; None: not each of them was measured alone


@dataclass(frozen=True)
class Attribution:
    """The default and what each measured change of it does, the largest effect first."""

    world_size: int
    default: TrialRecord
    default_efficiency: Estimate
    singles: tuple[Effect, ...]
    together: tuple[Effect, ...]


@dataclass(frozen=True)
class ModelChange:
    """From one study's default to another's: what the workload did and what the setting did, as ratios."""

    world_size: int
    before: Estimate  # efficiency
    after: Estimate
    total: Estimate
    workload: Estimate | None  # the other workload at the same setting; None: not measured at one
    settings: Estimate | None  # the other default's setting on the first workload
    interaction: Estimate | None
    same_setting: str  # at which the workloads are compared


def attribution(results: MeasuredStudy, in_same_rounds: InSameRounds | None = None) -> Attribution | None:
    """What each knob does at the target world size; None without the default or anything beside it.

    ``in_same_rounds``: which of the settings were measured so.
    """
    in_same_rounds = in_same_rounds or InSameRounds(results.buckets)
    there = _at_target(results)
    default = _default(results, there)
    base = _efficiency(results, default) if default else None
    if default is None or base is None:
        return None
    others = [
        record for record in there if record is not default and _efficiency(results, record) is not None
    ]
    effects = [_effect(results, default, record, in_same_rounds, len(others)) for record in others]
    singles = [each for each in effects if len(each.changes) == 1]
    alone: dict[Factor, list[Effect]] = {}
    for each in singles:
        alone.setdefault(next(iter(factors_of(each))), []).append(each)
    together = [
        _with_interaction(each, alone, base, len(others)) for each in effects if len(each.changes) > 1
    ]
    if not effects:
        return None
    size = default.config.world_size
    return Attribution(
        size, default, base, tuple(sorted(singles, key=_size)), tuple(sorted(together, key=_size))
    )


def between(
    before: MeasuredStudy, after: MeasuredStudy, between_starts: float = BETWEEN_STARTS
) -> ModelChange | None:
    """How much of the change from one study's default to the other's came from the workload.

    The two have different workloads, the same world size at their targets, and one setting at least in
    common: the workload's part is the ratio of efficiencies there, preferably at the first one's default.
    Ratios of the two studies hold what starts differ by, as ``ratio_of_starts`` has it; what the setting did
    is of one study's starts. None where a default is missing or the world sizes differ.
    """
    first_trials, last_trials = _at_target(before), _at_target(after)
    first, last = _default(before, first_trials), _default(after, last_trials)
    if first is None or last is None or first.config.world_size != last.config.world_size:
        return None
    old, new = _efficiency(before, first), _efficiency(after, last)
    if old is None or new is None:
        return None
    last_of: dict[Hashable, TrialRecord] = {_key(each.config): each for each in last_trials}
    common = [(each, last_of[key]) for each in first_trials if (key := _key(each.config)) in last_of]
    pair = min(common, key=lambda each: (each[0] is not first, each[1] is not last), default=None)
    workload = efficiency_ratio((after, pair[1]), (before, pair[0]), between_starts) if pair else None
    moved = next((record for record in first_trials if record.config.same_setting(last.config)), None)
    in_new_setting = _efficiency(before, moved) if moved else None
    settings = unpaired_ratio(in_new_setting, old) if in_new_setting else None
    total = efficiency_ratio((after, last), (before, first), between_starts)
    assert total is not None  # both have an efficiency
    interaction = None
    if pair is not None and pair[0] is first and moved is not None and moved is not first:
        ends = [_efficiency(before, first), new, _efficiency(before, moved), _efficiency(after, pair[1])]
        interaction = _log_sum([each for each in ends if each], (1, 1, -1, -1))
    return ModelChange(
        world_size=first.config.world_size,
        before=old,
        after=new,
        total=total,
        workload=workload,
        settings=settings,
        interaction=interaction,
        same_setting=before.label(pair[0]) if pair else "",
    )


def _at_target(results: MeasuredStudy) -> list[TrialRecord]:
    """One complete trial for each setting at the target world size: one with all variants before others."""
    placement = default_placement(results.study, results.target_world_size)
    fitting = [
        record
        for record in results.tried
        if record.config.world_size == results.target_world_size > 1 and record.config.placement == placement
    ]
    return one_of_each(fitting, _key)


def _key(config: Configuration) -> Hashable:
    """Equal for configurations of the ``same_setting``."""
    return config.key(config.world_size, config.ANY_USE)


def _default(results: MeasuredStudy, there: Sequence[TrialRecord]) -> TrialRecord | None:
    """The study's default among the trials at the target."""
    return next((record for record in there if is_default(results.study, record.config)), None)


def _efficiency(results: MeasuredStudy, record: TrialRecord) -> Estimate | None:
    return results.scaling(record).efficiency


def _effect(
    results: MeasuredStudy, default: TrialRecord, record: TrialRecord, paired: InSameRounds, among: int
) -> Effect:
    mine, base = (results.scaling(each) for each in (record, default))
    assert mine.efficiency is not None
    assert base.efficiency is not None
    apart = between_starts(record, default)
    rates = rate_ratio(record, default, results.scalings, paired, among)
    return Effect(
        changes=record.config.differences(default.config),
        label=difference_words(results.study, record.config),
        record=record,
        efficiency=mine.efficiency,
        efficiency_ratio=simultaneous_ratio(mine.efficiency, base.efficiency, among, apart),
        throughput_ratio=rates.ratio,
        is_paired=rates.is_paired,
        interaction=None,
    )


def _with_interaction(
    effect: Effect, alone: Mapping[Factor, Sequence[Effect]], base: Estimate, among: int
) -> Effect:
    """log(together / default) - sum of log(single / default); the default is in it m - 1 times.

    ``alone``: the effects of one change, by that.
    """
    factors = factors_of(effect)
    parts = [single for item in factors for single in alone.get(item, ())]
    if len(parts) != len(factors):
        return effect
    terms = [effect.efficiency, *(part.efficiency for part in parts), base]
    signs = (1, *(-1 for _ in parts), len(parts) - 1)
    return replace(effect, interaction=simultaneous(_log_sum(terms, signs), among))


def factors_of(effect: Effect) -> set[Factor]:
    """The changes; of the batch, that of a pass, as accumulation changes the batch of a step as well."""
    passes = effect.record.config.samples_per_pass
    return {(name, passes if name == "batch_size" else value) for name, value in effect.changes.items()}


def _log_sum(terms: Sequence[Estimate], weights: Sequence[int]) -> Estimate:
    """The product of the terms, each to the power of its weight; half-widths of logarithms add in squares."""
    log = sum(w * math.log(each.value) for w, each in zip(weights, terms, strict=True))
    half = math.hypot(*(w * each.log_half_width for w, each in zip(weights, terms, strict=True)))
    return of_log(log, half, min(each.n for each in terms), min(each.starts for each in terms))


def efficiency_ratio(
    numerator: tuple[MeasuredStudy, TrialRecord],
    denominator: tuple[MeasuredStudy, TrialRecord],
    between_starts: float,
) -> Estimate | None:
    """One study's efficiency over another's, start by start; None where one has no baseline."""
    over, under = (
        [each.efficiency for each in study.by_start(record) if each.efficiency is not None]
        for study, record in (numerator, denominator)
    )
    return ratio_of_starts(over, under, between_starts) if over and under else None


def _size(effect: Effect) -> float:
    return -abs(math.log(effect.efficiency_ratio.value))


@dataclass(frozen=True)
class MarginalEffect:
    """One knob of a winner that changes several."""

    label: str  # "5 MiB buckets"
    ratio: Estimate  # samples/s of the winner over those of the same without it
    is_paired: bool  # in the same rounds, else by two trials apart


def marginal_effects(
    base: MeasuredStudy, best: Best | None, shared: InSameRounds
) -> tuple[MarginalEffect, ...]:
    """Those of ``best`` without which it was measured too, and may be no slower.

    A confirmation is of all changes together against the default: who takes the winner over takes over what
    came along with it.
    """
    if best is None or best.is_default:
        return ()
    record = base.reference(best.record)
    setting, default = record.config.setting, default_setting(base.study)
    changed = setting.differences(default)
    found = list[MarginalEffect]()
    for name, value in changed.items() if len(changed) > 1 else ():
        without = setting.model_copy(update={name: getattr(default, name)})
        other = base.reference_of(record.config.model_copy(update={"setting": without}))
        if other is None or other is record:
            continue
        over = rate_ratio(record, other, base.scalings, shared, len(changed))
        if over.ratio.low <= 1:
            found.append(MarginalEffect(changes_words({name: value}), over.ratio, over.is_paired))
    return tuple(found)
