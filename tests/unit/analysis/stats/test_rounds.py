"""Outliers and trends over rounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from raybench.analysis.stats.rounds import mann_kendall, outlying, theil_sen


def test_outlier_rounds_are_named() -> None:
    values = np.array([1.0, 1.01, 0.99, 1.0, 1.5, 1.0, 1.01, 0.99, 1.0, 1.0])
    assert np.flatnonzero(outlying(values)).tolist() == [4]
    assert not outlying(np.ones(10)).any()
    assert not outlying(np.array([1.0, 1.0, 1.0, 1.04])).any()  # too small to matter
    with_gap = np.insert(values, 2, np.nan)
    assert np.flatnonzero(outlying(with_gap)).tolist() == [5]


def test_mann_kendall_agrees_with_scipy() -> None:
    values = np.random.default_rng(0).normal(size=25) + np.arange(25) * 0.05
    expected = stats.kendalltau(np.arange(25), values, method="asymptotic").pvalue
    assert mann_kendall(values) == pytest.approx(expected, rel=0.15)  # continuity correction apart
    assert theil_sen(np.arange(25.0), values) == pytest.approx(stats.theilslopes(values).slope)
    assert mann_kendall(np.ones(9)) == 1.0
