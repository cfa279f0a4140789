"""What confirmations say: every winner of a study against its default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.estimates.efficiency import Gain, gain, gain_of
from raybench.analysis.estimates.over_starts import BETWEEN_STARTS
from raybench.analysis.estimates.simultaneous import simultaneous_ratio
from raybench.analysis.labels import difference_words
from raybench.analysis.load import LOADED, Load, load_of
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.objectives import Candidate
from raybench.records.record import TrialRecord


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
    paired = [record for record in base.measured if record.request.role == "confirmation"]
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
