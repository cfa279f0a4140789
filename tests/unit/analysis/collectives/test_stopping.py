"""When a place has been measured for long enough."""

from __future__ import annotations

from raybench.analysis.collectives.stopping import seconds_left
from raybench.spec.sweep import SweepMeasureSpec
from tests.unit.sweeps import KIB, swept


def test_nothing_measured_leaves_all_the_time() -> None:
    assert seconds_left([], SweepMeasureSpec(max_seconds=30.0), "cpu") == 30.0


def test_narrow_intervals_end_it_and_wide_ones_do_not() -> None:
    records, _ = swept(message_bytes=(KIB,))
    (record,) = records
    assert record.collectives is not None
    spent_s = record.collectives.measure_s
    assert seconds_left(records, SweepMeasureSpec(half_width=0.2), "cpu") == 0
    left_s = seconds_left(records, SweepMeasureSpec(half_width=1e-6, max_seconds=60.0), "cpu")
    assert left_s == 60.0 - spent_s


def test_less_time_than_the_fewest_rounds_take_is_none() -> None:
    records, _ = swept(message_bytes=(KIB,))
    assert records[0].collectives is not None
    spent_s = records[0].collectives.measure_s  # ten rounds
    assert seconds_left(records, SweepMeasureSpec(half_width=1e-6, max_seconds=1.2 * spent_s), "cpu") == 0
