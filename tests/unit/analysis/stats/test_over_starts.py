"""What several starts say together: by hand, against scipy, and by how often the interval holds the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from raybench.analysis.stats.statistics import (
    BETWEEN_STARTS,
    Estimate,
    mean_over_starts,
    of_log,
    over_starts,
    ratio_of_starts,
    t_quantile,
    unpaired_ratio,
)

REPEATS = 2000
ROUNDS = 0.02  # standard error of a start's estimate by its rounds, of the logarithm


def estimate(value: float, half_width: float = 0.01, n: int = 10) -> Estimate:
    return of_log(math.log(value), half_width, n)


def drawn(random: np.random.Generator, starts: int, between: float = BETWEEN_STARTS) -> list[Estimate]:
    """Starts of one program whose true value is 1; the intervals are of the rounds, which are many."""
    logs = random.normal(0, between, starts) + random.normal(0, ROUNDS, starts)
    return [of_log(log, 1.96 * ROUNDS, 10) for log in logs]


def test_one_start_is_itself() -> None:
    one = estimate(2.0)
    assert over_starts([one]) is mean_over_starts([one]) is one


def test_students_interval_over_the_starts() -> None:
    values = [1.0, 1.1, 1.25]
    found = over_starts([estimate(value) for value in values])
    logs = np.log(values)
    half = 4.302653 * logs.std(ddof=1) / math.sqrt(3)  # t of 2 degrees of freedom
    assert found.value == pytest.approx(1.375 ** (1 / 3))
    assert (found.low, found.high) == pytest.approx(tuple(np.exp([logs.mean() - half, logs.mean() + half])))
    assert (found.n, found.starts) == (30, 3)
    mean = mean_over_starts([Estimate(value, value, value, 10) for value in (-1.0, 0.0, 4.0)])
    assert mean.value == 1.0
    assert mean.half_width == pytest.approx(4.302653 * math.sqrt(7) / math.sqrt(3))


def test_starts_that_agree_by_chance_do_not_make_rounds_surer() -> None:
    found = over_starts([estimate(1.0, half_width=0.05)] * 4)
    assert found.log_half_width == pytest.approx(0.05 / 2)
    assert mean_over_starts([Estimate(1.0, 0.9, 1.1, 10)] * 4).half_width == pytest.approx(0.1 / 2)


def test_several_starts_on_both_sides_are_welchs() -> None:
    one, other = [1.0, 1.1, 1.25], [0.8, 0.9, 0.85, 1.05]
    found = ratio_of_starts([estimate(v, 0.0) for v in one], [estimate(v, 0.0) for v in other], 0.5)
    test = stats.ttest_ind(np.log(one), np.log(other), equal_var=False).confidence_interval(0.95)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((test.low, test.high))
    assert found.starts == 3
    assert ratio_of_starts([estimate(1.0, 0.0)] * 2, [estimate(2.0, 0.0)] * 2, 0.5).half_width == 0.0


def test_with_one_start_what_starts_differ_by_is_assumed() -> None:
    one, several = [estimate(1.0, 0.04)], [estimate(2.0, 0.03)] * 3
    both = ratio_of_starts(one, one, 0.03)
    assert both.log_half_width == pytest.approx(math.hypot(0.04, 0.04, 1.959964 * 0.03 * math.sqrt(2)))
    mixed = ratio_of_starts(several, one, 0.03)
    rounds = math.hypot(0.04, 0.03 / math.sqrt(3))
    assert mixed.log_half_width == pytest.approx(math.hypot(rounds, 1.959964 * 0.03 * math.sqrt(4 / 3)))
    assert (mixed.value, mixed.starts) == (pytest.approx(2.0), 1)


def test_starts_that_scatter_more_than_is_assumed_are_believed() -> None:
    """Three starts with a standard deviation of 10% against one: the 10% is on both sides, t of 2 degrees."""
    several = [of_log(log, 0.0, 10) for log in (-0.1, 0.0, 0.1)]
    found = ratio_of_starts(several, [estimate(1.0, 0.0)], 0.03)
    assert found.log_half_width == pytest.approx(4.302653 * 0.1 * math.sqrt(1 + 1 / 3))
    swapped = ratio_of_starts([estimate(1.0, 0.0)], several, 0.03)
    assert swapped.log_half_width == pytest.approx(found.log_half_width)


def test_without_an_assumption_it_is_the_ratio_of_two_runs() -> None:
    one, other = estimate(1.0, 0.04), estimate(2.0, 0.03)
    assert ratio_of_starts([one], [other], 0.0) == unpaired_ratio(one, other)


@pytest.mark.parametrize("starts", [1, 2, 3, 5])
def test_the_ratio_of_equal_programs_holds_1_as_often_as_it_says(starts: int) -> None:
    """Starts differ as is assumed, planted: 95% of the intervals hold 1, and 2.5% lie below it."""
    random = np.random.default_rng(starts)
    found = [
        ratio_of_starts(drawn(random, starts), drawn(random, starts), BETWEEN_STARTS) for _ in range(REPEATS)
    ]
    covered = sum(not each.excludes(1.0) for each in found) / REPEATS
    assert 0.935 < covered < 0.99  # above 95% where two starts leave Welch few degrees of freedom
    assert sum(each.high < 1 for each in found) / REPEATS < 0.04


@pytest.mark.parametrize("starts", [2, 3, 5])
def test_the_mean_over_starts_covers_too(starts: int) -> None:
    random = np.random.default_rng(starts)
    found = [over_starts(drawn(random, starts)) for _ in range(REPEATS)]
    assert 0.935 < sum(not each.excludes(1.0) for each in found) / REPEATS < 0.99


def test_the_rounds_alone_raise_false_alarms() -> None:
    """What is wrong with the interval of two runs' rounds: starts that differ leave it."""
    random = np.random.default_rng(0)
    found = [unpaired_ratio(drawn(random, 1)[0], drawn(random, 1)[0]) for _ in range(REPEATS)]
    assert sum(each.high < 1 for each in found) / REPEATS > 0.1


def test_normal_quantile() -> None:
    assert t_quantile(math.inf) == pytest.approx(1.959964)
