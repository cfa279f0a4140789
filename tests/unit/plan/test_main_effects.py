"""The model of main effects: what it expects of a setting, and which it would measure next."""

import math

import numpy as np
import pytest

from raybench.plan.main_effects import Points, chance_of_success, expected_improvement

BATCHES = (32, 256, 2048)


def points(*settings: tuple[int, int, int]) -> Points:
    """Batch, and two other knobs by the numbers of their values."""
    rows = [[math.log(batch), float(first), float(second)] for batch, first, second in settings]
    return Points(np.array(rows), (True, False, False))


def logs(*settings: tuple[int, int, int]) -> np.ndarray:
    """A throughput that grows with the batch, 20% by the first knob and -10% by the second."""
    effects = [0.7 * math.log(batch) + 0.2 * first - 0.1 * second for batch, first, second in settings]
    return np.array(effects)


def test_what_two_knobs_do_together_is_expected_from_each_alone():
    alone = [(2048, 0, 0), (32, 0, 0), (256, 0, 0), (2048, 1, 0), (2048, 0, 1)]
    others = [(2048, 1, 1), (32, 1, 0), (256, 0, 1)]
    _, expected = expected_improvement(points(*alone), logs(*alone), points(*others))
    assert expected == pytest.approx(logs(*others), abs=0.05)


def test_nothing_is_expected_of_a_batch_that_is_slow():
    row = [(batch, 0, 0) for batch in BATCHES]
    others = [(batch, 1, 0) for batch in BATCHES]
    improvement, _ = expected_improvement(points(*row), logs(*row), points(*others))
    assert improvement[2] > 0.05  # a knob of which nothing is known: 0.08 of a standard deviation of 0.2
    assert improvement[:2] == pytest.approx(0.0, abs=1e-6)


def test_the_best_is_what_is_expected_of_it_and_not_what_was_measured():
    """Twice the same setting, measured 10% apart: a third time is no better than the mean of the two."""
    same = points((32, 0, 0), (32, 0, 0))
    improvement, expected = expected_improvement(same, np.array([0.0, 0.1]), points((32, 0, 0)))
    assert expected == pytest.approx(0.05)
    assert improvement[0] < 0.01  # 0.02 is the uncertainty of the mean; over 0.1 it would be 0


def test_a_value_that_failed_is_less_likely_than_one_with_successes_and_given_up_at_the_second_time():
    measured, failed = points((32, 0, 0), (256, 0, 0), (2048, 0, 0)).values, points((2048, 1, 0)).values
    others = points((2048, 1, 1), (2048, 0, 0), (32, 0, 0)).values
    found = chance_of_success(measured, failed, others)
    assert found == pytest.approx([1 / 2, 2 / 3, 4 / 5])
    twice = np.concatenate([failed, points((256, 1, 0)).values])
    assert chance_of_success(measured, twice, others) == pytest.approx([0, 2 / 3, 4 / 6])
    assert chance_of_success(measured, failed[:0], others) == pytest.approx(1)
