"""Parts of a step, and words for its communication."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.report.sections.waterfall import communication_table, waterfall_table


def test_parts_and_communication(results: StudyResults) -> None:
    assert [row[0] for row in waterfall_table(results).rows] == [
        "ideal",
        "contention",
        "DDP wrapper",
        "skew",
        "communication",
        "step time",
    ]
    names = [row[0] for row in communication_table(results).rows]
    assert "T_comm = T(n) - T(1), ms" in names
    assert "Amdahl's serial fraction f" not in names  # of weak scaling
    assert all(row[3] for row in communication_table(results).rows)  # what each is
    assert not any(name.startswith("communication") and name != "communication / T(n)" for name in names)
