"""Numbers and intervals in words."""

from __future__ import annotations

from raybench.analysis.estimates.statistics import Estimate
from raybench.report.wording import (
    aligned,
    duration_words,
    figures,
    interval,
    mebibytes,
    milliseconds,
    percent,
    times,
)


def test_numbers_in_words() -> None:
    assert interval(Estimate(5123.4, 5050, 5190.2, 12)) == "5,123 [5,050, 5,190]"
    assert times(Estimate(1.664, 1.636, 1.69, 12)) == "1.66x [1.64, 1.69]"
    assert percent(Estimate(0.14, 0.11, 0.17, 9), sign=True) == "+14% [11, 17]"
    assert percent(Estimate(0.001, -0.002, 0.003, 9), sign=True) == "+0.1% [-0.2, 0.3]"
    assert percent(Estimate(-0.0001, -0.02, 0.02, 9)) == "0% [-2, 2]"
    assert aligned(12.345, 12.1, 12.6) == ("12.3", "12.1", "12.6")
    assert aligned(1e-15, 0, 1e-15) == ("0", "0", "0")
    assert [figures(value) for value in (5120.4, 45.06, 1.657, 0.01234, 0)] == [
        "5,120",
        "45.1",
        "1.66",
        "0.0123",
        "0",
    ]
    assert [duration_words(each) for each in (1.25, 0.0123, 1e-16)] == ["1.25 s", "12.3 ms", "0 ms"]
    assert milliseconds(Estimate(0.012345, 0.0121, 0.0126, 9)) == "12.3 [12.1, 12.6]"
    assert [mebibytes(each) for each in (None, 3 << 30)] == ["", "3,072"]
