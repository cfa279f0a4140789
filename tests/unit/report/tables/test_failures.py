"""Trials without numbers, and why."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.report.tables.failures import failures_table


def test_every_failure_has_its_state_and_reason(wide: StudyResults) -> None:
    assert all(row[3] == "oom" and "out of memory" in row[4] for row in failures_table(wide).rows)
    assert len(failures_table(wide).rows) == len(wide.failed) > 0
