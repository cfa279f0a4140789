"""Intervals stay within bounds, and are Student's where the bounds are far away."""

from __future__ import annotations

import math

import numpy as np
import pytest

from raybench.analysis.stats.statistics import ANYWHERE, POSITIVE, SHARE, Estimate, student, within
from raybench.analysis.training import over_seeds, ratio_over_seeds


def test_two_seeds_have_a_value_and_no_interval() -> None:
    """Student's interval of these is [-96%, 221%]."""
    assert over_seeds([0.75, 0.5], SHARE) == Estimate(0.625, 0.625, 0.625, 2)
    assert ratio_over_seeds([1.0, 4.0]) == Estimate(2.0, 2.0, 2.0, 2)
    assert over_seeds([None, 0.5], SHARE) == Estimate(0.5, 0.5, 0.5, 1)
    assert over_seeds([None]) is None


@pytest.mark.parametrize(
    "values", [[0.2, 0.6, 0.95], [0.97, 0.99, 0.999], [0.0, 0.001, 0.3], [1.0, 1.0, 1.0]]
)
def test_the_interval_of_a_share_is_one(values: list[float]) -> None:
    found = over_seeds(values, SHARE)
    assert found is not None
    assert found.value == pytest.approx(np.mean(values))  # a table's mean is the mean
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_the_interval_of_times_far_apart_is_above_0() -> None:
    plain = student([0.1, 0.2, 1.9])
    found = within(plain, POSITIVE)
    assert plain.low < 0 < found.low < found.value < found.high
    assert found.log_half_width == pytest.approx(plain.half_width / plain.value)


def test_far_from_its_bounds_an_interval_is_students() -> None:
    plain = student([0.500, 0.501, 0.502])
    for bounds in (SHARE, POSITIVE, ANYWHERE):
        found = within(plain, bounds)
        assert (found.low, found.high) == (
            pytest.approx(plain.low, abs=2e-5),
            pytest.approx(plain.high, abs=2e-5),
        )


def test_a_share_and_what_is_left_of_it_have_one_interval() -> None:
    share, rest = (within(Estimate(value, value - 0.2, value + 0.2, 3), SHARE) for value in (0.9, 0.1))
    assert (1 - share.high, 1 - share.low) == (pytest.approx(rest.low), pytest.approx(rest.high))


def test_an_endless_half_width_is_all_that_can_be() -> None:
    endless = Estimate(0.4, -math.inf, math.inf, 3)
    assert (within(endless, SHARE).low, within(endless, SHARE).high) == (0.0, 1.0)
    assert within(endless, POSITIVE).low == 0.0


def test_values_beyond_the_bounds_have_none() -> None:
    """A workload of one's own may have a loss below 0."""
    assert over_seeds([-1.0, 0.5, 2.0], POSITIVE) == student([-1.0, 0.5, 2.0])


def test_the_logit_interval_covers_the_truth() -> None:
    """Accuracies of 5 seeds near 1, where Student's own reaches beyond it."""
    random = np.random.default_rng(0)
    draws = 1 / (1 + np.exp(-random.normal(4.0, 0.6, (2000, 5))))
    truth = float((1 / (1 + np.exp(-random.normal(4.0, 0.6, 1_000_000)))).mean())
    held = [(found := within(student(each), SHARE)).low <= truth <= found.high for each in draws]
    assert 0.92 < float(np.mean(held)) < 0.98


def test_what_is_lost_is_no_less_than_nothing_and_no_more_than_all() -> None:
    assert Estimate(0.1, -0.3, 0.5, 9).not_negative == Estimate(0.1, 0.0, 0.5, 9)
    assert Estimate(0.8, 0.4, 1.2, 9).as_share == Estimate(0.8, 0.4, 1.0, 9)
    measured_below = Estimate(-0.1, -0.3, 0.1, 9)
    assert measured_below.as_share == measured_below
