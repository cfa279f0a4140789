"""Speeds over pairs of neighbouring starts: drift cancels, what differs is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest

from raybench.analysis.comparison import paired_speed, pairs_to_tell, shown_by_pairs
from raybench.analysis.stats.statistics import Estimate, of_log, student, unpaired_ratio
from raybench.analysis.stats.verdict import Verdict, slower_by

WITHIN = 0.005  # half-width of a start's own interval, relative
LEVEL = 10_000.0  # samples/s
STUDIES = 400


def starts(
    pairs: int,
    slower: float,
    noise: float,
    seed: int,
    drift: Callable[[int], float] = lambda place: 0.0,
    within: float = WITHIN,
) -> tuple[list[Estimate], list[Estimate]]:
    """The throughputs of A and B in the order A B B A A B ..., with noise of starts and a drift in time."""
    draw, place = np.random.default_rng(seed), count()
    sides: dict[str, list[Estimate]] = {"A": [], "B": []}
    for turn in range(pairs):
        for side in "AB" if turn % 2 == 0 else "BA":
            log = math.log(LEVEL) + drift(next(place)) + noise * draw.standard_normal()
            sides[side].append(of_log(log + (math.log1p(-slower) if side == "B" else 0.0), within, 10))
    return sides["A"], sides["B"]


def verdicts(share: float, **planted: float) -> list[Verdict]:
    pairs = int(planted.pop("pairs", 5))
    runs = (starts(pairs, seed=seed, **planted) for seed in range(STUDIES))  # type: ignore[arg-type]
    return [slower_by(paired_speed(*run), share) for run in runs]


def test_what_drifts_over_the_starts_cancels_in_pairs() -> None:
    """A machine that loses a third over ten starts: neither side's own spread tells 5%, the pairs do."""
    first, second = starts(5, 0.05, 0.001, seed=1, drift=lambda place: -0.07 * (place // 2) - 0.001 * place)
    found = paired_speed(first, second)
    assert found.value == pytest.approx(0.95, abs=0.002)
    assert found.log_half_width < 0.005
    for side in (first, second):
        assert student([math.log(each.value) for each in side]).half_width > 0.1


@pytest.mark.parametrize("pairs", [5, 10])
def test_the_least_difference_that_pairs_show_is_shown_by_half_of_such_runs(pairs: int) -> None:
    """By the spread of one long run; a loss twice as large is nearly always shown."""
    least = shown_by_pairs(paired_speed(*starts(200, 0.0, 0.01, seed=1, within=1e-4)), pairs)
    for slower, low, high in ((least, 0.4, 0.65), (2 * least, 0.93, 1.0)):
        found = verdicts(0.0, pairs=pairs, slower=slower, noise=0.01, within=1e-4)
        assert low * STUDIES <= found.count(Verdict.WORSE) <= high * STUDIES


def test_a_slowdown_of_five_percent_is_told_by_five_starts() -> None:
    found = verdicts(0.0, slower=0.05, noise=0.01)
    assert found.count(Verdict.WORSE) >= 0.95 * STUDIES
    assert Verdict.AS_GOOD not in found


def test_a_slowdown_of_five_percent_is_not_taken_for_three() -> None:
    """It is 2% beyond the limit: five starts tell it more often than not, and never pass it."""
    found = verdicts(0.03, slower=0.05, noise=0.01)
    assert found.count(Verdict.WORSE) > 0.5 * STUDIES
    assert found.count(Verdict.AS_GOOD) <= 0.01 * STUDIES


@pytest.mark.parametrize("noise", [0.01, 0.07])
@pytest.mark.parametrize("pairs", [2, 5])
def test_what_is_equal_is_not_called_slower(noise: float, pairs: int) -> None:
    assert verdicts(0.0, slower=0.0, noise=noise, pairs=pairs).count(Verdict.WORSE) <= 0.05 * STUDIES
    assert verdicts(0.03, slower=0.0, noise=noise, pairs=pairs).count(Verdict.WORSE) <= 0.05 * STUDIES


def test_what_is_equal_passes_where_starts_are_quiet() -> None:
    assert verdicts(0.03, slower=0.0, noise=0.005).count(Verdict.AS_GOOD) >= 0.9 * STUDIES


def test_the_interval_is_students_over_the_pairs() -> None:
    first, second = starts(5, 0.05, 0.02, seed=3)
    pairs = zip(first, second, strict=True)
    logs = student([math.log(after.value / before.value) for before, after in pairs])
    found = paired_speed(first, second)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((logs.low, logs.high))
    assert (found.n, found.starts) == (5, 5)


def test_pairs_that_agree_by_chance_are_no_better_known_than_their_starts() -> None:
    first, second = starts(4, 0.05, 0.0, seed=1, within=0.03)
    found = paired_speed(first, second)
    each = unpaired_ratio(second[0], first[0])
    assert found.value == pytest.approx(0.95)
    assert found.log_half_width == pytest.approx(each.log_half_width / 2)


def test_the_number_of_pairs_that_would_tell() -> None:
    """With the spread as it is; of two pairs most of the interval is Student's for one degree of freedom."""
    spread = 0.01  # of a pair, known by two
    found = of_log(math.log(0.95), 12.706 * spread / math.sqrt(2), 2)
    assert slower_by(found, 0.0) is Verdict.UNKNOWN
    assert pairs_to_tell(found, 0.0) == 3  # 4.303 * 0.01 / sqrt(3) is 0.025, and 0.051 is lost
    assert pairs_to_tell(found, 0.03) == 4  # 3.182 * 0.01 / sqrt(4) is 0.016, and 0.021 is beyond
    assert pairs_to_tell(of_log(math.log(0.97), 0.1, 5), 0.03) is None  # on the limit itself
