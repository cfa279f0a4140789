"""Better, worse, as good, or not known yet; and how much more measuring would tell."""

from __future__ import annotations

import math

import pytest

from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import (
    MOST,
    Verdict,
    gain_of,
    slower_by,
    times_to_tell,
    values_to_tell,
    verdict,
)

MARGIN = 0.02


def gain(value: float, half: float) -> Estimate:
    return Estimate(value, value - half, value + half, 12)


@pytest.mark.parametrize(
    ("value", "half", "said"),
    [
        (0.14, 0.03, Verdict.BETTER),
        (0.03, 0.02, Verdict.BETTER),  # though part of it is within the margin
        (-0.10, 0.05, Verdict.WORSE),
        (0.0, 0.015, Verdict.AS_GOOD),
        (0.01, 0.005, Verdict.AS_GOOD),  # surely faster, by less than makes a difference
        (-0.01, 0.005, Verdict.AS_GOOD),
        (0.012, 0.01, Verdict.UNKNOWN),  # surely faster, by as much as makes a difference or less
        (-0.012, 0.01, Verdict.UNKNOWN),
        (0.01, 0.02, Verdict.UNKNOWN),
        (0.05, 0.06, Verdict.UNKNOWN),
        (-0.05, 0.06, Verdict.UNKNOWN),
        (0.0, 0.5, Verdict.UNKNOWN),
        (0.0, math.inf, Verdict.UNKNOWN),
    ],
)
def test_what_an_interval_says(value: float, half: float, said: Verdict) -> None:
    assert verdict(gain(value, half), MARGIN) is said


def test_without_a_margin_nothing_is_as_good() -> None:
    assert verdict(gain(0.001, 0.0005), 0.0) is Verdict.BETTER
    assert verdict(gain(0.0, 0.0), 0.0) is Verdict.AS_GOOD


def test_the_words_are_those_of_the_report() -> None:
    assert [str(each) for each in Verdict] == ["better", "worse", "as good", "not known yet"]


def test_twice_the_half_width_needs_four_times_the_measuring() -> None:
    assert times_to_tell(gain(0.05, 0.05), MARGIN) == 1
    assert times_to_tell(gain(0.05, 0.10), MARGIN) == 4
    assert times_to_tell(gain(0.05, 0.20), MARGIN) == 16


@pytest.mark.parametrize("value", [0.0, 0.01, 0.05, -0.05])
def test_a_wider_interval_never_needs_less(value: float) -> None:
    times = [times_to_tell(gain(value, half), MARGIN) for half in (0.03, 0.06, 0.1, 0.2)]
    assert all(times)
    assert times == sorted(times, key=lambda each: each or 0)


@pytest.mark.parametrize(("value", "half"), [(0.05, 0.2), (0.004, 0.05), (-0.03, 0.11)])
def test_so_much_measuring_does_tell(value: float, half: float) -> None:
    times = times_to_tell(gain(value, half), MARGIN)
    assert times is not None
    assert verdict(gain(value, half / math.sqrt(times) * 0.999), MARGIN) is not Verdict.UNKNOWN
    assert verdict(gain(value, half / math.sqrt(times - 1)), MARGIN) is Verdict.UNKNOWN


def test_what_would_take_too_much_has_no_number() -> None:
    assert times_to_tell(gain(0.0, 10.0), MARGIN) is None
    assert times_to_tell(gain(0.1, math.inf), MARGIN) is None
    assert times_to_tell(gain(0.0, 0.1), 0.0) is None
    found = times_to_tell(gain(0.0, MARGIN * math.sqrt(MOST) * 0.999), MARGIN)
    assert found == MOST - 1 or found == MOST


def test_a_gain_is_a_ratio_less_one_with_both_intervals() -> None:
    found = gain_of(Estimate(1.14, 1.10, 1.18, 12, 1, 3, (1.05, 1.23)), MARGIN)
    assert (found.gain.value, found.gain.low, found.gain.high) == pytest.approx((0.14, 0.10, 0.18))
    assert found.gain.again == pytest.approx((0.05, 0.23))
    assert (found.gain.n, found.gain.visits) == (12, 3)
    assert found.verdict is Verdict.BETTER
    assert found.to_tell is None  # it is told


def test_a_gain_that_is_not_known_says_what_would_tell() -> None:
    found = gain_of(Estimate(1.05, 0.95, 1.15, 12), MARGIN)
    assert found.verdict is Verdict.UNKNOWN
    assert found.to_tell == 4


def test_a_speed_is_slower_by_a_share_as_a_gain_is_worse() -> None:
    assert slower_by(gain(0.90, 0.04), 0.05) is Verdict.WORSE
    assert slower_by(gain(0.90, 0.06), 0.05) is Verdict.UNKNOWN
    assert slower_by(gain(0.99, 0.03), 0.05) is Verdict.AS_GOOD
    assert slower_by(gain(1.20, 0.03), 0.05) is Verdict.AS_GOOD


def test_the_values_that_would_tell_count_the_degrees_of_freedom_won() -> None:
    """Three values with a spread of 1: five times the root of the measuring is less than it looks."""
    of_three = Estimate(1.0, 1.0 - 4.303 / math.sqrt(3), 1.0 + 4.303 / math.sqrt(3), 3)
    assert verdict(of_three, 0.0) is Verdict.UNKNOWN
    assert values_to_tell(of_three, 0.0) == 7  # 2.447 / sqrt(7) is 0.92; of 6 2.571 / sqrt(6) is 1.05
    assert times_to_tell(of_three, 0.0, 3) == 19
    assert values_to_tell(of_three, 1.0) == 7  # within the margin there is no more room
    assert values_to_tell(gain(0.0, 1.0), 0.0) is None
