"""Numbers and intervals in words."""

from __future__ import annotations

import pytest

from raybench.analysis.stats.statistics import Estimate
from raybench.report.format import (
    aligned,
    bit_rate_words,
    clock,
    duration_words,
    exact_clock,
    figures,
    interval,
    milliseconds,
    number_words,
    percent,
    plain_lasting,
    plain_share,
    plus_minus,
    rate_words,
    relative_words,
    sentence,
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
    assert [duration_words(each) for each in (1.25, 0.0123, 0.00045)] == ["1.25 s", "12.3 ms", "450 µs"]
    assert milliseconds(Estimate(0.012345, 0.0121, 0.0126, 9)) == "12.3 [12.1, 12.6]"


def test_a_bandwidth_and_a_range_of_it() -> None:
    assert (rate_words(18e9), rate_words(48e6)) == ("18.0 GB/s", "48.0 MB/s")
    assert rate_words(48e6, 0.3e9) == "0.048 to 0.3 GB/s"
    assert rate_words(18e9, 18.0001e9) == "18.0 GB/s"
    assert (bit_rate_words(18e9), bit_rate_words(0.75e9, 3.5e9)) == ("144 Gbit/s", "6.00 to 28.0 Gbit/s")


def test_what_rounds_to_nothing_has_no_sign() -> None:
    """As "-0.0%" of a step."""
    assert [plain_share(each) for each in (-0.0002, 0.0002, -0.012, 0.3721)] == [
        "0.0%",
        "0.0%",
        "-1.2%",
        "37.2%",
    ]
    assert percent(Estimate(-0.0001, -0.0001, -0.0001, 1)) == "0.0%"


def test_a_run_is_said_in_a_unit_that_suits_it() -> None:
    told = {2.994: "2.99 s [2.69, 3.29]", 0.0499: "49.9 ms [44.9, 54.9]", 7956.0: "2.21 h [1.99, 2.43]"}
    for seconds, words in told.items():
        assert plain_lasting(Estimate(seconds, 0.9 * seconds, 1.1 * seconds, 9)) == words
    assert plain_lasting(Estimate(-180.0, -240.0, -120.0, 9)) == "-3.00 min [-4.00, -2.00]"
    assert plain_lasting(Estimate(2e-4, 1.98e-4, 2.02e-4, 9), plus_minus) == "200 µs ±1%"


def test_thousands_are_separated_in_every_count() -> None:
    assert number_words([1200, 500], "round") == "500 to 1,200 rounds"
    assert number_words([1200, 1200], "round") == "1,200 rounds"


def test_two_seeds_have_no_interval() -> None:
    assert times(Estimate(1.5, 1.5, 1.5, 2)) == "1.50x"


def test_an_interval_that_ends_far_away_says_so_and_no_number() -> None:
    """As a few rounds on a machine that others use gave them."""
    wild = Estimate(0.27, 1e-6, 1085.15, 4)
    assert percent(wild) == "27% [0, >2700]"
    assert times(wild) == "0.27x [0.00, >27.00]"
    assert interval(wild.scaled(10)) == "3 [0, >270]"
    assert relative_words(wild) == "±>10000%"
    assert percent(Estimate(0.27, 0.14, 0.9, 4)) == "27% [14, 90]"
    assert relative_words(Estimate(1.0, 0.97, 1.03, 10)) == "±3%"
    assert percent(Estimate(0.001, -0.2, 0.2, 4), sign=True) == "+0% [-20, 20]"


def test_a_sentence_begins_with_a_capital_but_for_a_value() -> None:
    assert [sentence(each) for each in ("batch 64 is faster", "all-reduce, alone", "")] == [
        "Batch 64 is faster",
        "All-reduce, alone",
        "",
    ]
    for value in ("bf16 is faster", "tf32, batch 64", "static_graph helps", "50 MiB buckets"):
        assert sentence(value) == value


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (40, "40 s"),
        (99.4, "99 s"),
        (115, "2 min"),
        (180, "3 min"),
        (5940, "99 min"),
        (7500, "2 h 5 min"),
        (3600 * 25, "25 h"),
    ],
)
def test_clock(seconds: float, words: str) -> None:
    assert clock(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (40, "40 s"),
        (120, "2 min"),
        (170, "2 min 50 s"),
        (119.7, "2 min"),
        (7500, "2 h 5 min"),
        (5400, "90 min"),
    ],
)
def test_what_was_asked_is_said_to_the_second(seconds: float, words: str) -> None:
    assert exact_clock(seconds) == words


def test_a_difference_near_0_has_both_its_ends() -> None:
    """Only what is never below 0 is cut off where it is many times its value."""
    assert interval(Estimate(1e-9, -0.113, 0.113, 5)) == "0 [-0.113, 0.113]"
    assert ">" in interval(Estimate(1.0, 0.001, 1e6, 5))
