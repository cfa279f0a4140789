"""Phases of a step."""

from __future__ import annotations

from raybench.report.sections.waterfall import phases_table
from tests.unit.studies import SIXTEEN_TENTHS, planted, without_intervals


def test_both_columns_do_the_samples_of_one_step_of_all_devices() -> None:
    table = phases_table(planted({(32,): SIXTEEN_TENTHS}, "batch_size"))
    forward = next(row for row in table.rows if row[0] == "forward")
    assert [without_intervals(each) for each in forward[1:3]] == ["6.00", "3.45"]
    assert "the 64 samples of one step on 2 devices" in table.caption
