"""Trials without numbers."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.records.record import TrialRecord
from raybench.report.tables.base import Column, Table, devices, make_table


def failures_table(results: StudyResults) -> Table:
    """Trials without numbers, and why."""
    columns: list[Column[TrialRecord]] = [
        Column("trial", lambda record: record.trial_id),
        Column("devices", devices, right=True),
        Column("role", lambda record: record.request.role),
        Column("setting", results.label, stays=True),
        Column("state", lambda record: record.state),
        Column("reason", lambda record: " ".join((record.reason or "").split()), stays=True),
    ]
    return make_table("Trials without numbers", "", columns, results.failed)
