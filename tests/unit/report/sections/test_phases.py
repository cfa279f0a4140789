"""Phases of a step, and of an epoch."""

from __future__ import annotations

from raybench.report.sections.waterfall import phases_table
from tests.unit.studies import SIXTEEN_TENTHS, planted, without_intervals


def test_each_phase_has_its_share_of_the_step_and_of_the_gain() -> None:
    table = phases_table(planted({(32,): SIXTEEN_TENTHS}, "batch_size"))
    forward = next(row for row in table.rows if row[0] == "forward")
    assert [without_intervals(each) for each in forward[1:4]] == ["3.00", "3.45", "27.6%"]
    headings = ["phase", "one device, ms", "2 devices, ms", "share of step", "speed-up", "share of the gain"]
    assert [each.heading for each in table.columns] == headings
    assert "A step of 64 samples on 2 devices" in table.caption


def test_phases_per_epoch_where_its_samples_are_known() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size", workload={"name": "vision", "samples": 6400})
    table = phases_table(found)
    headings = [column.heading for column in table.columns]
    assert headings[-2:] == ["one device, s an epoch", "2 devices, s an epoch"]
    forward = next(row for row in table.rows if row[0] == "forward")
    assert [without_intervals(each) for each in forward[-2:]] == ["0.600", "0.345"]
