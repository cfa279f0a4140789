"""Which trials a table shows, in which order, and what they are called there."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.records.record import TrialRecord
from raybench.records.requests import Role


def in_order(results: StudyResults, *roles: Role) -> list[TrialRecord]:
    """The complete records of these roles by setting, smallest world size first; the default's first."""
    chosen = [record for record in results.measured if record.request.role in roles]
    curve_of: dict[str, int] = {}
    for index, curve in enumerate(results.curves):
        for point in curve.points:  # a trial on one device belongs to several: it stands with the first
            curve_of.setdefault(point.trial_id, index)
    last = len(results.curves)
    return sorted(chosen, key=lambda record: (curve_of.get(record.trial_id, last), record.config.world_size))


def label_and_mark(results: StudyResults, record: TrialRecord) -> str:
    """The record's setting; a star where there were more workers than cores."""
    return results.label(record) + (" *" if record.config.oversubscribed else "")
