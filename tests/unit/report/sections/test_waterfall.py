"""Parts of a step, and words for its communication."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.report.sections.waterfall import waterfall_table


def test_parts_and_communication(results: StudyResults) -> None:
    assert [row[0] for row in waterfall_table(results).rows] == [
        "ideal",
        "contention",
        "wrapper",
        "skew",
        "communication",
        "step time",
        "transfers alone",
        "hidden by overlap",
    ]
    assert "Compute over transfers alone: " in waterfall_table(results).caption
