"""The settings that a report shows, and what further devices bring."""

from __future__ import annotations

import pytest

from raybench.analysis.laws import amdahl_speedup, marginal_returns
from raybench.analysis.stats.statistics import Estimate
from tests.unit.studies import exactly, planted


def test_a_setting_starts_on_one_device_of_the_same_rounds() -> None:
    found = planted({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size")
    large, small = found.settings
    assert (small.main.config.setting.batch_size, large.main.config.setting.batch_size) == (8, 128)
    assert [point.world_size for point in large.points] == [1, 2]
    one, two = large.points
    assert one.scaling.throughput_samples_per_s.value == pytest.approx(128 / 0.04)
    assert two.scaling.speedup is not None
    assert two.scaling.speedup.value == pytest.approx(1.6)
    assert large.waterfall is not None
    assert amdahl_speedup(0.05, 8) == pytest.approx(5.926, abs=1e-3)


def test_every_batch_is_shown_however_slow_and_what_is_recommended() -> None:
    """In a grid every setting is a curve; the small batches are the slowest of all, and why one looks."""
    precisions = {"fp32": 1.0, "bf16": 0.9, "fp16": 0.8, "tf32": 0.95}
    costs = {
        (batch, precision): exactly(0.8 if batch > 16 else 0.3, 0.004 + batch * share * 1e-4)
        for batch in (256, 128, 16)
        for precision, share in precisions.items()
    }
    found = planted(costs, "batch_size", "precision")
    named = [found.label(each.main.record) for each in found.settings]
    assert len(named) == 6
    assert named[0] == "batch 256, fp32"
    assert {words.split(",")[0] for words in named} == {"batch 256", "batch 128", "batch 16"}
    assert found.recommendation is not None
    assert found.recommendation.config in [each.main.config for each in found.settings]
    assert [words.split(",")[0] for words in named] == sorted(
        (words.split(",")[0] for words in named), key=lambda batch: -int(batch.removeprefix("batch "))
    )
    assert len(found.compared) == 12


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
