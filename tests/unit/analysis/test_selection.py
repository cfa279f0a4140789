"""The best of many equal settings is not called better: intervals hold for all that are compared at once."""

from __future__ import annotations

import pytest

from raybench.analysis.resolve import Facts, resolve
from raybench.analysis.stats.verdict import Verdict
from tests.support.planted import FakeRunner, Noise, StepCosts
from tests.unit.studies import grid, study

EQUAL = StepCosts(plain_s=0.010, contention_s=0.001, exposed_s=0.0015)
TRUE_EFFICIENCY = 0.8
STUDIES = 12
ALLOWED = 2  # of 12 at 5%: more in 2% of such tests; tests/calibration has 50 studies
SPEC = study(
    knobs={"bucket_cap_mb": ["default", 1, 5, 25], "precision": ["fp32", "bf16", "fp16"]},
    measure={"half_width": 0.05},
)


@pytest.fixture(scope="module")
def equal() -> list[Facts]:
    """Studies of twelve settings that are truly the same, 1 to 2% more efficient or less as measured."""
    return equal_studies(STUDIES)


def equal_studies(number: int) -> list[Facts]:
    noise = Noise(block=0.06, step=0.0, preemption=0.05)
    runner = FakeRunner(lambda config, setting: EQUAL, noise, seed=11)
    return [resolve(SPEC, grid(SPEC, (2,), runner)[0]) for _ in range(number)]


def called(equal: list[Facts]) -> int:
    """In how many studies some setting is called better or worse than the default."""
    told = {Verdict.BETTER, Verdict.WORSE}
    return sum(any(each.verdict in told for each in one.gains.values()) for one in equal)


def wrong_of_the_best(equal: list[Facts]) -> int:
    """How often the interval of the largest gain, which holds for all at once, lacks the truth: none."""
    gains = ((each.gain for each in one.gains.values()) for one in equal)
    return sum(max(each, key=lambda gain: gain.value).excludes(0.0) for each in gains)


def wrong_of_the_most_efficient(equal: list[Facts]) -> int:
    """How often the interval of the most efficient setting lacks the truth: it holds for that row alone."""
    found = ([one.scaling(each).efficiency for each in one.compared] for one in equal)
    best = (max(filter(None, each), key=lambda one: one.value) for each in found)
    return sum(each.excludes(TRUE_EFFICIENCY) for each in best)


def test_no_setting_is_called_better_or_worse_where_all_are_equal(equal: list[Facts]) -> None:
    assert called(equal) <= ALLOWED


def test_the_interval_of_the_largest_gain_holds_the_truth(equal: list[Facts]) -> None:
    assert wrong_of_the_best(equal) <= ALLOWED
