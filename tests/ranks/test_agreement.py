"""That the helpers of this layer can fail, and by how much."""

from __future__ import annotations

import pytest

from raybench.analysis.stats.statistics import Estimate, trimmed_mean
from raybench.records.results import StepsResult
from tests.conftest import BUSY
from tests.ranks.agreement import MUCH, agrees, measured_undisturbed, ratios_agree, standard_error
from tests.support.planted import StepCosts
from tests.unit.studies import measured

ROUNDS = [1.0, 1.02, 0.98, 1.01, 0.99, 1.03, 0.97, 1.0, 1.01, 0.99]
FOUND = trimmed_mean(ROUNDS)
ERROR, FLOOR = standard_error(FOUND), 0.05


def _biased(standard_errors: float) -> Estimate:
    by = FLOOR + standard_errors * ERROR
    return Estimate(FOUND.value + by, FOUND.low + by, FOUND.high + by, FOUND.n)


def test_the_standard_error_is_that_of_the_winsorized_rounds() -> None:
    # one of ten is trimmed at each end: 0.98, 0.98, 0.99, 0.99, 1, 1, 1.01, 1.01, 1.02, 1.02
    squares = 2 * (0.02**2 + 0.01**2) * 2
    assert pytest.approx((squares / 9) ** 0.5 / (0.8 * 10**0.5)) == ERROR


def test_five_standard_errors_beyond_the_floor_fail_and_four_do_not() -> None:
    agrees("x", _biased(4.0), FOUND.value, floor=FLOOR, most_error=1.0)
    with pytest.raises(AssertionError, match="planted"):
        agrees("x", _biased(5.0), FOUND.value, floor=FLOOR, most_error=1.0)


def test_an_interval_too_wide_to_show_anything_fails() -> None:
    with pytest.raises(AssertionError, match="shows nothing"):
        agrees("x", FOUND, FOUND.value, floor=FLOOR, most_error=0.9 * ERROR)
    with pytest.raises(AssertionError, match="not found"):
        agrees("x", None, 0.0, floor=FLOOR, most_error=1.0)


def test_two_ratios_agree_within_the_errors_of_both() -> None:
    error = 2**0.5 * ERROR
    for far, is_same in ((4.0, True), (5.0, False)):
        other = FOUND.scaled(2.718281828 ** (FLOOR + far * error))
        if is_same:
            ratios_agree(FOUND, other, floor=FLOOR, most_error=1.0)
        else:
            with pytest.raises(AssertionError):
                ratios_agree(FOUND, other, floor=FLOOR, most_error=1.0)


@pytest.mark.parametrize(
    ("loads", "is_busy"), [((0.9,), False), ((1.1, 0.9), False), ((1.1, 1.1), True)], ids=str
)
def test_only_the_load_in_the_record_is_a_reason_to_measure_once_more(
    loads: tuple[float, ...], is_busy: bool
) -> None:
    records = [measured(StepCosts(plain_s=0.01, other_cores=load * MUCH)).steps for load in loads]
    todo = iter(records)

    def measure() -> StepsResult:
        steps = next(todo)
        assert steps is not None
        return steps

    if is_busy:
        with pytest.raises(pytest.skip.Exception, match=BUSY):
            measured_undisturbed(measure, lambda found: found)
    else:
        assert measured_undisturbed(measure, lambda found: found) is records[-1]
    assert next(todo, None) is None
