"""Intervals that hold for many at once, by closed forms; their use is tested in test_selection.py."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from raybench.analysis.stats.statistics import (
    Estimate,
    geometric,
    simultaneous,
    simultaneous_ratio,
    unpaired_ratio,
)

LEVEL = 0.5 + 0.95 ** (1 / 12) / 2  # of one of twelve
ALONE = geometric([1.0, 1.1, 1.2, 0.9, 1.0, 1.05, 1.1, 0.95, 1.0, 1.02])


def wider(degrees: int) -> float:
    return float(stats.t.ppf(LEVEL, degrees) / stats.t.ppf(0.975, degrees))


def test_ten_rounds_leave_seven_degrees_of_freedom() -> None:
    found = simultaneous(ALONE, 12)
    assert (found.value, found.n) == (ALONE.value, 10)
    assert found.log_half_width == pytest.approx(wider(7) * ALONE.log_half_width)
    assert math.sqrt(found.low * found.high) == pytest.approx(found.value)
    assert simultaneous(ALONE, 1) == ALONE


def test_two_trials_alike_have_twice_as_many() -> None:
    pair, alone = simultaneous_ratio(ALONE, ALONE, 12), unpaired_ratio(ALONE, ALONE)
    assert pair.log_half_width == pytest.approx(wider(14) * alone.log_half_width)
    assert simultaneous_ratio(ALONE, ALONE, 1) == alone


def test_starts_count_where_there_are_several() -> None:
    starts = Estimate(0.8, 0.7, 0.8**2 / 0.7, n=30, starts=3)
    found = simultaneous(starts, 12)
    assert found.starts == 3
    assert found.log_half_width == pytest.approx(wider(2) * starts.log_half_width)


def test_what_lies_between_starts_is_in_a_ratio_of_one_start_each() -> None:
    found = simultaneous_ratio(ALONE, ALONE, 1, between_starts=0.03)
    rounds = unpaired_ratio(ALONE, ALONE).log_half_width
    assert found.log_half_width == pytest.approx(math.hypot(rounds, 1.959964 * 0.03 * math.sqrt(2)))
    starts = Estimate(0.8, 0.7, 0.8**2 / 0.7, n=30, starts=3)
    assert simultaneous_ratio(starts, starts, 12, 0.03) == simultaneous_ratio(starts, starts, 12)


def test_what_is_exact_stays_so() -> None:
    exact = Estimate(0.8, 0.8, 0.8, 10)
    assert simultaneous(exact, 12) == exact
    assert simultaneous_ratio(exact, exact, 12).half_width == 0
    half = simultaneous_ratio(ALONE, exact, 12)  # one side alone is uncertain
    assert half.log_half_width == pytest.approx(wider(7) * ALONE.log_half_width)


def test_as_one_of_very_many_an_interval_of_few_rounds_has_no_end() -> None:
    few = Estimate(1.5, 1.1, 2.0, 4)
    among = 5_000_000_000  # pairs of 100,000 settings
    for found in (simultaneous(few, among), simultaneous_ratio(few, few, among)):
        assert found.low < 1e-100
        assert found.high == float("inf")
