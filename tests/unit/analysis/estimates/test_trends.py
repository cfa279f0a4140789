"""Outliers and trends over rounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from raybench.analysis.estimates.device_spread import device_spreads
from raybench.analysis.estimates.trends import mann_kendall, outlying, theil_sen


def test_outlier_rounds_are_named() -> None:
    values = np.array([1.0, 1.01, 0.99, 1.0, 1.5, 1.0, 1.01, 0.99, 1.0, 1.0])
    assert np.flatnonzero(outlying(values)).tolist() == [4]
    assert not outlying(np.ones(10)).any()
    assert not outlying(np.array([1.0, 1.0, 1.0, 1.04])).any()  # too small to matter
    with_gap = np.insert(values, 2, np.nan)
    assert np.flatnonzero(outlying(with_gap)).tolist() == [5]


@pytest.mark.parametrize("num_rounds", [3, 10, 31])
def test_a_row_of_many_is_as_it_is_alone(num_rounds: int) -> None:
    rows = np.random.default_rng(num_rounds).lognormal(0.0, 0.1, (40, num_rounds))
    rows[::3, 1] *= 1.6
    rows[::4] *= np.linspace(1.0, 1.5, num_rounds)
    assert np.array_equal(outlying(rows), [outlying(row) for row in rows])
    assert np.array_equal(mann_kendall(rows), [mann_kendall(row) for row in rows])
    devices = [number % 2 for number in range(num_rounds)]
    many = device_spreads(np.log(rows), devices)
    if num_rounds < 4:
        assert many is None
        return
    assert many is not None
    for place, row in enumerate(rows):
        one = device_spreads(np.log(row)[None], devices)
        assert one is not None
        assert (one.slow[0], one.fast[0]) == (many.slow[place], many.fast[place])
        assert (one.apart[0], one.half[0]) == pytest.approx((many.apart[place], many.half[place]))


def test_mann_kendall_agrees_with_scipy() -> None:
    values = np.random.default_rng(0).normal(size=25) + np.arange(25) * 0.05
    expected = stats.kendalltau(np.arange(25), values, method="asymptotic").pvalue
    assert mann_kendall(values) == pytest.approx(expected, rel=0.15)  # continuity correction apart
    assert theil_sen(np.arange(25.0), values) == pytest.approx(stats.theilslopes(values).slope)
    assert mann_kendall(np.ones(9)) == 1.0
