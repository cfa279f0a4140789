"""How much each setting changes the scaling efficiency against the default, and all changes of an ablation.

An effect is a ratio to the default: a contrast of the pool, simultaneous over all effects, as the largest of
many is flattered by chance. Where knobs were changed together and each alone as well, the interaction is what
is left: together over the product of the single effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.resolve import Facts
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.knobs import KnobValue

Factor = tuple[str, KnobValue]  # one change


@dataclass(frozen=True)
class Effect:
    """One setting against the default: ratios, 1 is no change; intervals simultaneous over all effects."""

    changes: dict[str, KnobValue]  # knobs, and variables, that differ from the default
    record: TrialRecord
    efficiency_ratio: Estimate
    interaction: Estimate | None  # of several changes; None: not each of them was measured alone


def effects(results: Facts) -> dict[str, Effect]:
    """What each setting does at the target world size, by trial id; empty without the default there."""
    default = results.default
    if default is None or not 1 < default.config.world_size == results.target_world_size:
        return {}
    if results.scaling(default).efficiency is None:
        return {}
    others = [
        record
        for record in results.rivals
        if record is not default and results.scaling(record).efficiency is not None
    ]
    ratios = results.fit.efficiency_ratios([(record, default) for record in others])
    interactions = _interactions(results, default, others)
    return {
        record.trial_id: Effect(record.config.differences(default.config), record, ratio, interaction)
        for record, ratio, interaction in zip(others, ratios, interactions, strict=True)
    }


def _interactions(
    results: Facts, default: TrialRecord, others: Sequence[TrialRecord]
) -> list[Estimate | None]:
    """Of each of several changes: together over the default, over the product of the single ones.

    None of a single change, and where not each was measured alone.
    """
    changed = [_factors(record.config, default.config) for record in others]
    alone = dict[Factor, TrialRecord]()
    for record, factors in zip(others, changed, strict=True):
        if len(factors) == 1:
            alone.setdefault(next(iter(factors)), record)
    found = list[Estimate | None]()
    for record, factors in zip(others, changed, strict=True):
        parts = [alone[each] for each in factors if each in alone]
        is_known = len(factors) > 1 and len(parts) == len(factors)
        rest = [default] * (len(parts) - 1)
        found.append(results.fit.efficiency_product([record, *rest], parts) if is_known else None)
    return found


def _factors(config: Configuration, default: Configuration) -> set[Factor]:
    """The changes; of the batch, that of a pass, as accumulation changes the batch of a step as well."""
    passes = config.samples_per_pass
    return {
        (name, passes if name == "batch_size" else value)
        for name, value in config.differences(default).items()
    }
