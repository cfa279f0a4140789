"""Throughput over the devices for every batch, and what further devices bring."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.batch_lines import amdahl_speedup, marginal_returns
from raybench.analysis.stats.statistics import Estimate
from tests.support.planted import FakeRunner
from tests.unit.studies import exactly, exactly_strong, grid, planted, study


def test_lines_of_a_batch_start_on_one_device_of_the_same_rounds() -> None:
    found = planted({(8,): exactly(0.3), (128,): exactly(0.8, 0.04)}, "batch_size")
    small, large = found.batch_lines
    assert (small.batch_size, large.batch_size) == (8, 128)
    assert [point.world_size for point in large.points] == [1, 2]
    assert large.points[0].throughput_samples_per_s.value == pytest.approx(128 / 0.04)
    assert large.points[1].speedup.value == pytest.approx(1.6)
    assert large.points[1].serial_fraction is None  # in weak scaling nothing is serial
    assert amdahl_speedup(0.05, 8) == pytest.approx(5.926, abs=1e-3)


def test_a_line_of_strong_scaling_has_a_serial_fraction() -> None:
    (line,) = planted({(128,): exactly_strong(0.8)}, "batch_size", scaling={"mode": "strong"}).batch_lines
    fraction = line.points[1].serial_fraction
    assert fraction is not None
    assert fraction.value == pytest.approx(0.25, rel=1e-6)  # (1/1.6 - 1/2) / (1 - 1/2)


def over_one(value: float, half: float = 0.0) -> Estimate:
    return Estimate(value, value - half, value + half, 10)


def test_a_marginal_return_is_what_a_doubling_gains_of_as_many_devices_alone() -> None:
    found = marginal_returns([(1, over_one(1)), (4, over_one(3.4, 0.08)), (2, over_one(1.9, 0.06))])
    assert [(each.fewer, each.more) for each in found] == [(1, 2), (2, 4)]
    assert [each.each.value for each in found] == pytest.approx([0.9, 0.75])
    assert [each.each.half_width for each in found] == pytest.approx([0.06, 0.1 / 2])


def test_without_one_device_in_the_list_it_is_where_speed_ups_are_over() -> None:
    """Of four over one that stood in their rounds; of eight over four, the fewest that fit."""
    (found,) = marginal_returns([(4, over_one(3.4, 0.3))])
    assert (found.fewer, found.more) == (1, 4)
    assert (found.each.value, found.each.half_width) == pytest.approx((0.8, 0.1))
    (found,) = marginal_returns([(4, over_one(1)), (6, over_one(1.2, 0.1)), (8, over_one(1.5, 0.1))])
    assert (found.fewer, found.more) == (4, 8)
    assert (found.each.value, found.each.half_width) == pytest.approx((0.5, 0.1))
    assert marginal_returns([]) == marginal_returns([(1, over_one(1))]) == ()


def test_a_slower_world_size_returns_less_than_nothing() -> None:
    *_, found = marginal_returns([(2, over_one(1.9)), (4, over_one(1.5, 0.1))])
    assert (found.each.value, found.each.low, found.each.high) == pytest.approx((-0.2, -0.25, -0.15))


def test_a_line_of_several_starts_says_so_in_every_point() -> None:
    spec = study(knobs={"batch_size": [8, 128]}, measure={"starts": 3})
    records = grid(spec, (1, 2), FakeRunner(seed=3))[0]
    for line in analyse(spec, records).batch_lines:
        one, two = line.points
        parts = (one.throughput_samples_per_s, one.speedup, two.throughput_samples_per_s, two.speedup)
        assert min(part.starts for part in parts) >= 3
