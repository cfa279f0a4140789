"""Laws find the serial fraction that was planted, and say nothing where none gives the speed-up."""

from __future__ import annotations

import pytest

from raybench.analysis.laws import amdahl_speedup, by_law, gustafson_speedup
from raybench.analysis.stats.statistics import Estimate


@pytest.mark.parametrize("is_strong", [True, False])
@pytest.mark.parametrize("measured_on", [2, 3, 8])
def test_a_planted_fraction_is_found_and_its_speed_ups_follow(measured_on: int, is_strong: bool) -> None:
    law = amdahl_speedup if is_strong else gustafson_speedup
    found = by_law(
        Estimate(law(0.1, measured_on), law(0.12, measured_on), law(0.07, measured_on), 9),
        measured_on,
        is_strong=is_strong,
    )
    assert found is not None
    fraction = found.fraction
    assert (fraction.low, fraction.value, fraction.high) == pytest.approx((0.07, 0.1, 0.12))
    assert [size for size, _ in found.speedups] == [2 * measured_on, 4 * measured_on, 8 * measured_on]
    for size, speedup in found.speedups:
        ends = (law(0.12, size), law(0.1, size), law(0.07, size))
        assert (speedup.low, speedup.value, speedup.high) == pytest.approx(ends)


@pytest.mark.parametrize(("value", "low", "high"), [(0.9, 0.8, 1.1), (1.1, 0.95, 1.3), (2.1, 1.9, 2.3)])
def test_no_law_gives_what_is_not_surely_faster_or_more_than_ideal(
    value: float, low: float, high: float
) -> None:
    for is_strong in (True, False):
        assert by_law(Estimate(value, low, high, 9), 2, is_strong=is_strong) is None


def test_an_interval_beyond_ideal_ends_there() -> None:
    found = by_law(Estimate(1.9, 1.8, 2.1, 9), 2, is_strong=True)
    assert found is not None
    assert found.fraction.low == 0.0
    assert found.speedups[0][1].high == pytest.approx(4.0)
