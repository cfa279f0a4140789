from __future__ import annotations

import math

import pytest

from raybench.analysis.curves import crossover
from raybench.analysis.stats.statistics import Estimate


def at(value: float, relative: float = 0.02) -> Estimate:
    return Estimate(value, value * (1 - relative), value * (1 + relative), 12)


def test_interpolates_on_logarithms_between_the_neighbours() -> None:
    found = crossover([(512, at(1.6)), (32, at(0.8)), (128, at(1.25))])
    assert found is not None
    assert found.batch == pytest.approx(math.sqrt(32 * 128))
    assert (found.below, found.above) == (32, 128)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.batch < found.high


def test_a_power_law_is_found_exactly() -> None:
    found = crossover([(batch, at((batch / 70) ** 0.4)) for batch in (32, 128, 512)])
    assert found is not None
    assert found.batch == pytest.approx(70)


def test_an_end_beyond_what_was_measured_is_none() -> None:
    found = crossover([(32, at(0.99, 0.05)), (128, at(1.02, 0.01))])
    assert found is not None
    assert found.low is None
    assert found.high is not None


@pytest.mark.parametrize("speedups", [(0.5, 0.9), (1.1, 1.5), (1.2, 0.9), (1.5,), ()])
def test_not_bracketed_is_none(speedups: tuple[float, ...]) -> None:
    assert crossover([(2**index, at(value)) for index, value in enumerate(speedups)]) is None


def test_every_passage_of_1_is_told() -> None:
    found = crossover([(8, at(0.8)), (32, at(1.2)), (128, at(0.9)), (512, at(1.5))])
    assert found is not None
    assert found.brackets == ((8, 32), (32, 128), (128, 512))
    assert found.is_slower
    once = crossover([(8, at(0.8)), (32, at(1.2))])
    assert once is not None
    assert once.brackets == ((8, 32),)


def test_slower_needs_an_interval_below_1() -> None:
    unsure = crossover([(32, at(0.98, 0.05)), (128, at(1.3))])
    assert unsure is not None
    assert not unsure.is_slower
