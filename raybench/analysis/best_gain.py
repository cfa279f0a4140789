"""What the best suggestion brings over the default where no confirmation says it: by two trials apart."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.attribution import Attribution
from raybench.analysis.choice import Best, is_default
from raybench.analysis.confirmations import Confirmation
from raybench.analysis.estimates.efficiency import Gain, gain_of
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.speaking import InSameRounds, rate_ratio
from raybench.records.record import TrialRecord


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
    record = base.speaker(best.record)
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
