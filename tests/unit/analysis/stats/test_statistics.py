"""Estimates and their intervals: by hand, against scipy, and by how often they hold the truth."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from raybench.analysis.stats.statistics import (
    ANYWHERE,
    POSITIVE,
    SHARE,
    Estimate,
    geometric,
    of_log,
    ratio_of_runs,
    simultaneous,
    student,
    t_quantile,
    trimmed_mean,
    unpaired_ratio,
    within,
)
from raybench.analysis.training import over_seeds, ratio_over_seeds
from raybench.records.requests import StepsRequest, Variant
from raybench.spec.study import MeasureSpec
from tests.ranks.agreement import by_rounds
from tests.support.planted import FakeRunner, Noise, StepCosts, to_record
from tests.unit.studies import request

REPETITIONS = 100  # tests/calibration has hundreds, and narrower bounds
LEAST = 0.87  # of intervals of 95%: one of 2,000 such tests has fewer
EVEN = StepCosts(plain_s=0.010, contention_s=0.001, exposed_s=0.002)
HEAVY = Noise(block=0.04, step=0.0, preemption=0.08, preemption_size=0.6)


def asked(**fields: Any) -> StepsRequest:
    return request(**{"variants": ("plain", "ddp"), "measure": MeasureSpec(half_width=0.05)} | fields)


def test_without_trimming_it_is_students_t() -> None:
    values = [3.0, 5.0, 4.0]
    expected = stats.t.interval(0.95, 2, loc=4.0, scale=stats.sem(values))
    found = trimmed_mean(values)
    assert (found.value, found.n) == (4.0, 3)
    assert (found.low, found.high) == pytest.approx(expected)


def test_tukey_mclaughlin_by_hand() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 100.0]
    winsorized = [2.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 9.0]
    error = np.std(winsorized, ddof=1) / (0.8 * math.sqrt(10))
    found = trimmed_mean(values)
    assert found.value == 5.5
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 7) * error)


def test_one_wild_round_of_four_changes_nothing_beyond_its_neighbour() -> None:
    assert trimmed_mean([1.0, 1.0, 1.0, 50.0]).value == 1.0


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [1.0, math.inf, 2.0]])
def test_too_little_or_not_finite_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least two finite values"):
        trimmed_mean(values)


def test_geometric_is_symmetric_under_inversion() -> None:
    ratios = np.array([0.8, 0.9, 0.85, 0.7, 0.95, 0.82])
    one, other = geometric(ratios), geometric(1 / ratios)
    assert one.value == pytest.approx(1 / other.value)
    assert (one.low, one.high) == pytest.approx((1 / other.high, 1 / other.low))


def test_unpaired_half_widths_add_in_squares() -> None:
    one = Estimate(2.0, 2.0 / math.exp(0.03), 2.0 * math.exp(0.03), 12)
    other = Estimate(4.0, 4.0 / math.exp(0.04), 4.0 * math.exp(0.04), 10)
    found = unpaired_ratio(one, other)
    assert found.value == pytest.approx(0.5)
    assert math.log(found.high / found.value) == pytest.approx(0.05)
    assert found.n == 10


def test_estimate_scaled_by_a_negative_factor_keeps_its_order() -> None:
    found = Estimate(2.0, 1.0, 4.0, 5).scaled(-1)
    assert (found.low, found.value, found.high) == (-4.0, -2.0, -1.0)
    assert found.excludes(0)
    assert not found.excludes(-3)


def covered(
    noise: Noise,
    half_width: float,
    min_rounds: int,
    seed: int,
    costs: StepCosts = EVEN,
    repetitions: int = REPETITIONS,
    variants: tuple[Variant, ...] = ("plain", "ddp"),
) -> tuple[float, float]:
    """Share of intervals of the rounds alone that hold the planted efficiency, and the mean number of rounds.

    How often those of a whole study do, whose trials differ, is benchmarks/coverage.py's.
    """
    block_steps = 15 if noise.drift_per_minute else 2  # a drift needs its time
    runner = FakeRunner(lambda request, setting: costs, noise, seed=seed, max_block_steps=block_steps)
    wanted = asked(variants=variants, measure=MeasureSpec(half_width=half_width, min_rounds=min_rounds))
    truth = runner.truth(wanted.config)["efficiency"]
    hits, rounds = 0, 0
    for _ in range(repetitions):
        record = to_record(wanted, runner.run(wanted, lambda progress: None))
        found = by_rounds(record).scaling(record).efficiency
        assert found is not None
        hits += found.low <= truth <= found.high
        rounds += found.n
    return hits / repetitions, rounds / repetitions


NOISES = {
    "quiet": (Noise(block=0.02, step=0.0), 0.05),
    "noisy": (Noise(block=0.06, step=0.0), 0.05),
    "heavy": (HEAVY, 0.05),
    "heavy and exact": (HEAVY, 0.03),
    "very heavy": (Noise(block=0.03, step=0.0, preemption=0.10, preemption_size=1.0), 0.05),
    "drifting": (Noise(block=0.03, step=0.0, preemption=0.05, drift_per_minute=0.5), 0.05),
}
LOADED = Noise(block=0.04, step=0.0, preemption=0.05)
SLOW = StepCosts(plain_s=0.010, contention_s=0.001, exposed_s=0.002, offset_s=(0.0, 0.003))


@pytest.mark.parametrize("name", ["heavy", "drifting"])  # tests/calibration has all
def test_the_interval_covers_95_percent_with_the_stopping_rule(name: str) -> None:
    noise, half_width = NOISES[name]
    share, _ = covered(noise, half_width, 10, seed=12)
    assert share >= LEAST


def test_a_constantly_slow_device_costs_no_rounds() -> None:
    """Where all devices are timed in every round; nor coverage: tests/calibration."""
    given: dict[str, Any] = {"repetitions": 25, "variants": ("plain", "concurrent", "ddp")}
    _, needed = covered(LOADED, 0.05, 10, 12, **given)
    _, rounds = covered(LOADED, 0.05, 10, 12, SLOW, **given)
    assert rounds <= 1.2 * needed


def test_two_seeds_have_a_value_and_no_interval() -> None:
    """Student's interval of these is [-96%, 221%]."""
    assert over_seeds([0.75, 0.5], SHARE) == Estimate(0.625, 0.625, 0.625, 2)
    assert ratio_over_seeds([1.0, 4.0]) == Estimate(2.0, 2.0, 2.0, 2)
    assert over_seeds([None, 0.5], SHARE) == Estimate(0.5, 0.5, 0.5, 1)
    assert over_seeds([None]) is None


@pytest.mark.parametrize(
    "values", [[0.2, 0.6, 0.95], [0.97, 0.99, 0.999], [0.0, 0.001, 0.3], [1.0, 1.0, 1.0]]
)
def test_the_interval_of_a_share_is_one(values: list[float]) -> None:
    found = over_seeds(values, SHARE)
    assert found is not None
    assert found.value == pytest.approx(np.mean(values))  # a table's mean is the mean
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_the_interval_of_times_far_apart_is_above_0() -> None:
    plain = student([0.1, 0.2, 1.9])
    found = within(plain, POSITIVE)
    assert plain.low < 0 < found.low < found.value < found.high
    assert found.log_half_width == pytest.approx(plain.half_width / plain.value)


def test_far_from_its_bounds_an_interval_is_students() -> None:
    plain = student([0.500, 0.501, 0.502])
    for bounds in (SHARE, POSITIVE, ANYWHERE):
        found = within(plain, bounds)
        assert (found.low, found.high) == (
            pytest.approx(plain.low, abs=2e-5),
            pytest.approx(plain.high, abs=2e-5),
        )


def test_a_share_and_what_is_left_of_it_have_one_interval() -> None:
    share, rest = (within(Estimate(value, value - 0.2, value + 0.2, 3), SHARE) for value in (0.9, 0.1))
    assert (1 - share.high, 1 - share.low) == (pytest.approx(rest.low), pytest.approx(rest.high))


def test_an_endless_half_width_is_all_that_can_be() -> None:
    endless = Estimate(0.4, -math.inf, math.inf, 3)
    assert (within(endless, SHARE).low, within(endless, SHARE).high) == (0.0, 1.0)
    assert within(endless, POSITIVE).low == 0.0


def test_values_beyond_the_bounds_have_none() -> None:
    """A workload of one's own may have a loss below 0."""
    assert over_seeds([-1.0, 0.5, 2.0], POSITIVE) == student([-1.0, 0.5, 2.0])


def test_the_logit_interval_covers_the_truth() -> None:
    """Accuracies of 5 seeds near 1, where Student's own reaches beyond it."""
    random = np.random.default_rng(0)
    draws = 1 / (1 + np.exp(-random.normal(4.0, 0.6, (2000, 5))))
    truth = float((1 / (1 + np.exp(-random.normal(4.0, 0.6, 1_000_000)))).mean())
    held = [(found := within(student(each), SHARE)).low <= truth <= found.high for each in draws]
    assert 0.92 < float(np.mean(held)) < 0.98


def pooled(value: float, half_width: float, again: float) -> Estimate:
    """A figure in this run, and in another."""
    found = of_log(math.log(value), half_width, 10)
    ends = (value * math.exp(-again), value * math.exp(again))
    return replace(found, visits=3, again=ends)


def test_a_ratio_of_two_runs_holds_what_runs_differ_by() -> None:
    """What another run would give differs by the noise of two; so does a ratio of two, and no more."""
    found = ratio_of_runs(pooled(2.0, 0.01, 0.06), pooled(1.0, 0.01, 0.08))
    assert found.value == pytest.approx(2.0)
    assert found.log_half_width == pytest.approx(0.10 / math.sqrt(2))
    assert (found.n, found.visits) == (10, 3)
    back = ratio_of_runs(pooled(1.0, 0.01, 0.08), pooled(2.0, 0.01, 0.06))
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_of_figures_without_another_run_it_is_that_of_their_rounds() -> None:
    one, other = of_log(0.0, 0.04, 10), of_log(0.5, 0.03, 10)
    assert ratio_of_runs(one, other).log_half_width == pytest.approx(0.05 / math.sqrt(2))


def test_normal_quantile() -> None:
    assert t_quantile(math.inf) == pytest.approx(1.959964)


LEVEL = 0.5 + 0.95 ** (1 / 12) / 2  # of one of twelve
ALONE = trimmed_mean([1.0, 1.1, 1.2, 0.9, 1.0, 1.05, 1.1, 0.95, 1.0, 1.02])


def wider(degrees: int) -> float:
    return float(stats.t.ppf(LEVEL, degrees) / stats.t.ppf(0.975, degrees))


def test_ten_rounds_leave_seven_degrees_of_freedom() -> None:
    found = simultaneous(ALONE, 12)
    assert (found.value, found.n) == (ALONE.value, 10)
    assert found.half_width == pytest.approx(wider(7) * ALONE.half_width)
    assert (found.low + found.high) / 2 == pytest.approx(found.value)
    assert simultaneous(ALONE, 1) == ALONE


def test_a_pooled_figure_is_widened_as_if_it_were_normal() -> None:
    figure = replace(ALONE, again=(0.0, 2.0))
    normal = float(stats.norm.ppf(LEVEL) / stats.norm.ppf(0.975))
    assert simultaneous(figure, 12).half_width == pytest.approx(normal * ALONE.half_width, rel=1e-4)


def test_what_is_exact_stays_so() -> None:
    exact = Estimate(0.8, 0.8, 0.8, 10)
    assert simultaneous(exact, 12) == exact


def test_a_number_added_moves_both_intervals_and_keeps_what_is_behind_them() -> None:
    found = Estimate(3.0, 2.5, 3.6, 20, 4, 2, (2.0, 4.0)).plus(-1)
    assert found == Estimate(2.0, 1.5, 2.6, 20, 4, 2, (1.0, 3.0))
    assert Estimate(3.0, 2.5, 3.6, 20).plus(-1).again is None
