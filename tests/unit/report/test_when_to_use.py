"""Which number of devices to use, in a sentence."""

from __future__ import annotations

from raybench.report.when_to_use import when_to_use
from raybench.testing import StepCosts
from tests.unit.studies import SIXTEEN_TENTHS, exactly, planted


def test_below_the_crossover_one_device_is_both_faster_and_cheaper() -> None:
    found = planted({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size")
    assert "Below a batch somewhere between 8 and 128" in when_to_use(found)
    near = planted({(32,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size")
    assert "Below about batch" in when_to_use(near)
    assert "one device is both faster and cheaper" in when_to_use(found)


def test_where_several_devices_are_slower_one_is_to_be_used() -> None:
    slow = planted({(8,): exactly(0.3)}, "batch_size")
    assert when_to_use(slow).startswith("Use one device: 2 devices (batch 8, fp32) are slower, 0.60x")


def test_several_devices_cost_device_time_where_they_are_faster() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size")
    assert "1.60x [1.60, 1.60] as fast, at +25% [25, 25] device time" in when_to_use(found)


def test_several_devices_of_one_node_that_is_paid_are_cheaper() -> None:
    """1.6 times as fast at 12 an hour in place of 11: 32% less; it said to use one where cost counts."""
    prices = {"price_per_node_hour": 10.0, "price_per_device_hour": 1.0}
    words = when_to_use(planted({(32,): SIXTEEN_TENTHS}, "batch_size", cost=prices))
    assert "Use 2 devices (batch 32, fp32): 1.60x [1.60, 1.60] as fast, and each sample costs -32%" in words
    assert "Use one" not in words
    prices["price_per_node_hour"] = 1e-9
    dear = when_to_use(planted({(32,): SIXTEEN_TENTHS}, "batch_size", cost=prices))
    assert "at +25% [25, 25] money a sample. Use one where cost counts." in dear


def test_it_speaks_of_the_setting_that_is_recommended() -> None:
    """As fp32 was advised where bf16 had been confirmed at more than twice its samples/s."""
    slow, fast = StepCosts(plain_s=0.010, exposed_s=0.002), StepCosts(plain_s=0.004, exposed_s=0.002)
    found = planted({("fp32",): slow, ("bf16",): fast}, "precision")
    assert found.recommendation is not None
    assert not found.recommendation.is_default
    assert when_to_use(found).startswith("Use 2 devices (bf16) where time counts: 1.33x")
