"""Phases of a step, and of an epoch."""

from __future__ import annotations

from raybench.report.sections.waterfall import phases_table
from tests.unit.studies import SIXTEEN_TENTHS, planted, without_intervals


def test_both_columns_do_the_samples_of_one_step_of_all_devices() -> None:
    table = phases_table(planted({(32,): SIXTEEN_TENTHS}, "batch_size"))
    forward = next(row for row in table.rows if row[0] == "forward")
    assert [without_intervals(each) for each in forward[1:3]] == ["6.00", "3.45"]
    assert table.columns[1].heading == "one device, 2 steps, ms"
    assert "the 64 samples of one step on 2 devices" in table.caption
    assert len(table.columns) == 5


def test_phases_per_epoch_where_its_samples_are_known() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size", workload={"name": "vision", "samples": 6400})
    table = phases_table(found)
    headings = [column.heading for column in table.columns]
    assert headings[-2:] == ["one device, s an epoch", "2 devices, s an epoch"]
    forward = next(row for row in table.rows if row[0] == "forward")
    assert [without_intervals(each) for each in forward[-2:]] == ["0.600", "0.345"]
