"""Parts of a step, and words for its communication."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.report.sections.waterfall import communication_table, waterfall_table


def test_parts_and_communication(results: StudyResults) -> None:
    assert [row[0] for row in waterfall_table(results).rows] == [
        "ideal",
        "contention",
        "wrapper",
        "skew",
        "communication",
        "step time",
    ]
    rows = communication_table(results).rows
    assert [row[0] for row in rows][:2] == ["transfers alone, ms", "hidden by overlap, ms"]
    assert all(row[3] for row in rows)  # what each is
