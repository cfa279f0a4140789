"""What all changes of an ablation bring together, and each one's share of it.

Effects multiply, so shares are of logarithms: log(one change) / log(all together); what is left to 1 is
what the changes do together beyond, or short of, the product of what each does alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.attribution import Attribution, Effect, factors_of
from raybench.analysis.resolve import Facts
from raybench.analysis.stats.statistics import Estimate, product, unpaired_ratio
from raybench.analysis.training import Comparison, Goodput, TrainingResults
from raybench.records.record import TrialRecord


@dataclass(frozen=True)
class ChangeShare:
    """One change alone: its part of what all changes bring."""

    effect: Effect
    share: Estimate  # of the logarithm; negative: it takes something back


@dataclass(frozen=True)
class CombinedEffect:
    """All changes of an ablation together, against the default."""

    together: Effect
    singles: tuple[Effect, ...]  # each change alone, the largest effect first
    speedup: Estimate | None  # over one device, with all changes
    default_speedup: Estimate | None
    shares: tuple[ChangeShare, ...]  # the largest first; empty: all together change nothing for certain
    rest: Estimate | None  # of the changes together, beyond their product; None with no shares
    batch_ratio: float  # samples of an optimizer step over the default's
    goodput_ratio: Estimate | None  # None: no noise scale was measured, or only bounds are known
    trained: Comparison | None  # with all changes and without, on equally many devices


def combined_effect(
    results: Facts, found: Attribution | None, training: TrainingResults | None
) -> CombinedEffect | None:
    """Of a study whose search is an ablation; None where its changes together were not measured."""
    if found is None or results.study.search.method != "ablation" or not found.together:
        return None
    together = max(found.together, key=lambda each: len(each.changes))
    record = together.record
    factors = factors_of(together)
    parts = tuple(each for each in found.singles if factors_of(each) <= factors)
    shares, rest = _shares(parts, together)
    useful = training.goodput if training and training.is_scaled else ()
    useful_shares = [_useful_share(useful, each) for each in (record, found.default)]
    changed = training.changed if training else ()
    return CombinedEffect(
        together=together,
        singles=parts,
        speedup=results.scaling(record).speedup,
        default_speedup=results.scaling(found.default).speedup,
        shares=shares,
        rest=rest,
        batch_ratio=record.config.global_batch_size / found.default.config.global_batch_size,
        goodput_ratio=_goodput_ratio(together.throughput_ratio, *useful_shares),
        trained=next((each for each in changed if _is_of(each, record)), None),
    )


def _is_of(comparison: Comparison, record: TrialRecord) -> bool:
    """Whether the trained setting is that of ``record``, on as many devices."""
    config = comparison.group.config
    return config.world_size == record.config.world_size and config.same_setting(record.config)


def _shares(singles: Sequence[Effect], together: Effect) -> tuple[tuple[ChangeShare, ...], Estimate | None]:
    """None where all together are no certain change: there is nothing to share."""
    if together.interaction is None or not together.efficiency_ratio.excludes(1.0):
        return (), None
    whole = together.efficiency_ratio
    shares = [ChangeShare(each, _share(each.efficiency_ratio, whole)) for each in singles]
    return tuple(sorted(shares, key=lambda each: -each.share.value)), _share(together.interaction, whole)


def _share(part: Estimate, whole: Estimate) -> Estimate:
    """log(part) / log(whole), with the interval of a ratio to first order."""
    log = math.log(whole.value)
    value = math.log(part.value) / log
    half = math.hypot(part.log_half_width, value * whole.log_half_width) / abs(log)
    return Estimate(value, value - half, value + half, min(part.n, whole.n), min(part.starts, whole.starts))


def _goodput_ratio(rate: Estimate, share: Estimate | None, other: Estimate | None) -> Estimate | None:
    """By the ratio of the throughputs, which may be that of shared rounds, and of what of them is useful."""
    return None if share is None or other is None else product(rate, unpaired_ratio(share, other))


def _useful_share(goodput: Sequence[Goodput], record: TrialRecord) -> Estimate | None:
    """The statistical efficiency of a record's setting on as many devices."""
    size = record.config.world_size
    for each in goodput:
        config = each.record.config
        if config.world_size == size and config.same_setting(record.config):
            return each.statistical_efficiency
    return None
