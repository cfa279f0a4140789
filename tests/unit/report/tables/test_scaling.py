"""Every trial with its interval and its n."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.report.tables.scaling import scaling_table


def test_every_number_has_interval_and_n(results: StudyResults) -> None:
    table = scaling_table(results)
    assert table.columns[-1].heading == "n"
    for row in table.rows:
        assert "[" in row[2]
        assert "[" in row[3]
        assert int(row[-1]) >= 10
    assert [row[0] for row in table.rows] == ["1", "2", "1", "2"]
