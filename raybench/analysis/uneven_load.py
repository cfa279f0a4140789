"""Trials that other processes disturbed more than those beside which their settings are compared.

A busy program takes cores from whatever is measured meanwhile, and that is in no interval: a setting looks
slower than it is, and another one is chosen. Where all trials are disturbed alike their ratios hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.load import LOADED, Load, load_of
from raybench.analysis.measured import MeasuredStudy
from raybench.records.record import TrialRecord


@dataclass(frozen=True)
class UnderLoad:
    """One of them."""

    record: TrialRecord  # whose figures stand for the setting
    load: Load
    least: Load  # of the trial at this world size that was disturbed least

    @property
    def share(self) -> float:
        """The share of its step that is due to what others took more, where the step takes all they leave."""
        left, least_left = 1 - self.load.lost, 1 - self.least.lost
        return max(0.0, 1 - left / least_left) if least_left > 0 else 0.0


def under_load(base: MeasuredStudy) -> tuple[UnderLoad, ...]:
    """At the target world size, those of whose step a tenth or more may be due to others; the worst first."""
    measured, loads = {record.trial_id: record for record in base.measured}, dict[str, Load]()
    for record in base.tried:
        if record.config.world_size == base.target_world_size:
            told_by = base.told_by.get(record.trial_id, record.trial_id)
            load = load_of(measured[told_by])
            if load is not None:
                loads[told_by] = load
    if not loads:
        return ()
    least = min(loads.values(), key=lambda each: each.lost)
    found = [UnderLoad(measured[trial_id], load, least) for trial_id, load in loads.items()]
    return tuple(sorted((each for each in found if each.share >= LOADED), key=lambda each: -each.share))
