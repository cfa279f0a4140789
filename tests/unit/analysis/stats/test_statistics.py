"""Estimates and their intervals: by hand, against scipy, and by how often they hold the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from raybench.analysis.stats.efficiency import gain
from scipy import stats

from raybench.analysis.scaling import scaling
from raybench.analysis.stats.statistics import (
    ANYWHERE,
    BETWEEN_STARTS,
    POSITIVE,
    SHARE,
    Estimate,
    device_factors,
    geometric,
    mean_over_starts,
    of_log,
    over_starts,
    ratio_of_starts,
    relative_half_width,
    simultaneous,
    simultaneous_ratio,
    student,
    t_quantile,
    trimmed_mean,
    unpaired_ratio,
    within,
)
from raybench.analysis.stats.verdict import Verdict
from raybench.analysis.training import over_seeds, ratio_over_seeds
from raybench.records.requests import Configuration, StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
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
    assert relative_half_width(list(ratios)) == pytest.approx(math.log(one.high / one.low) / 2)


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


def test_what_a_slow_device_differs_by_is_taken_out() -> None:
    wobble = np.array([1.01, 0.99, 1.0, 1.005, 0.995])
    devices = [0, 1] * 5
    ratios = np.column_stack([wobble, 1.3 * wobble]).ravel()
    evened = ratios * device_factors(ratios, devices)
    assert np.exp(np.log(evened).mean()) == pytest.approx(math.sqrt(1.3), rel=1e-3)
    wide, narrow = geometric(ratios), geometric(evened)
    assert wide.relative_half_width > 0.1
    # two means were fitted to ten values
    both = np.exp(np.log(np.repeat(wobble, 2)) * 9 / 8)
    assert narrow.relative_half_width == pytest.approx(geometric(both).relative_half_width, rel=0.01)
    assert relative_half_width(list(ratios), devices) < 0.01


@pytest.mark.parametrize(
    ("ratios", "devices"),
    [
        ([1.0, 1.3] * 4, [0, 1] * 4),  # four rounds each are too few
        ([1.0, 1.02, 1.05, 0.97, 0.99, 1.01, 1.03, 1.0, 0.96, 1.04], [0, 1] * 5),  # they do not differ
        ([1.0, 1.3] * 5, [0] * 10),
    ],
    ids=["few rounds", "alike", "one device"],
)
def test_devices_are_left_alone_where_they_do_not_show_a_difference(
    ratios: list[float], devices: list[int]
) -> None:
    assert device_factors(ratios, devices).tolist() == [1.0] * len(ratios)


def covered(
    noise: Noise,
    half_width: float,
    min_rounds: int,
    seed: int,
    costs: StepCosts = EVEN,
    repetitions: int = REPETITIONS,
) -> tuple[float, float]:
    """Share of intervals that hold the planted efficiency, and the mean number of rounds."""
    block_steps = 15 if noise.drift_per_minute else 2  # a drift needs its time
    runner = FakeRunner(lambda request, setting: costs, noise, seed=seed, max_block_steps=block_steps)
    wanted = asked(measure=MeasureSpec(half_width=half_width, min_rounds=min_rounds))
    truth = runner.truth(wanted.config)["efficiency"]
    hits, rounds = 0, 0
    for _ in range(repetitions):
        found = scaling(to_record(wanted, runner.run(wanted, lambda progress: None))).efficiency
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


@pytest.mark.parametrize("name", NOISES)
def test_the_interval_covers_95_percent_with_the_stopping_rule(name: str) -> None:
    noise, half_width = NOISES[name]
    share, _ = covered(noise, half_width, 10, seed=12)
    assert share >= LEAST


def test_a_constantly_slow_device_costs_neither_coverage_nor_rounds() -> None:
    _, needed = covered(LOADED, 0.05, 10, 12)
    share, rounds = covered(LOADED, 0.05, 10, 12, SLOW)
    assert share >= LEAST
    assert rounds <= 1.2 * needed


def verdicts(planted_gain: float, repetitions: int) -> dict[Verdict, int]:
    """How often a confirmation of a planted gain comes out how."""
    default, winner = Setting(), Setting(precision="bf16")

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.01 if setting == default else 0.01 / (1 + planted_gain))

    runner = FakeRunner(costs, Noise(block=0.03, preemption=0.05), seed=5, max_block_steps=2)
    wanted = asked(
        role="confirmation",
        setting=winner,
        anchor=default,
        variants=("ddp", "anchor"),
        measure=MeasureSpec(half_width=0.02),
    )
    found = [
        gain(to_record(wanted, runner.run(wanted, lambda progress: None)), 0.02).verdict
        for _ in range(repetitions)
    ]
    return {verdict: found.count(verdict) for verdict in Verdict}


def test_a_change_of_five_percent_is_seen() -> None:
    seen = verdicts(0.05, REPETITIONS)
    assert seen[Verdict.BETTER] >= LEAST * REPETITIONS
    assert seen[Verdict.WORSE] == 0


def test_a_loss_of_five_percent_is_seen() -> None:
    assert verdicts(-0.05, REPETITIONS)[Verdict.WORSE] >= LEAST * REPETITIONS


def test_no_change_is_not_claimed() -> None:
    seen = verdicts(0.0, REPETITIONS)
    assert seen[Verdict.NONE] >= LEAST * REPETITIONS


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


def test_what_is_lost_is_no_less_than_nothing_and_no_more_than_all() -> None:
    assert Estimate(0.1, -0.3, 0.5, 9).not_negative == Estimate(0.1, 0.0, 0.5, 9)
    assert Estimate(0.8, 0.4, 1.2, 9).as_share == Estimate(0.8, 0.4, 1.0, 9)
    measured_below = Estimate(-0.1, -0.3, 0.1, 9)
    assert measured_below.as_share == measured_below


REPEATS = 2000
ROUNDS = 0.02  # standard error of a start's estimate by its rounds, of the logarithm


def estimate(value: float, half_width: float = 0.01, n: int = 10) -> Estimate:
    return of_log(math.log(value), half_width, n)


def drawn(random: np.random.Generator, starts: int, between: float = BETWEEN_STARTS) -> list[Estimate]:
    """Starts of one program whose true value is 1; the intervals are of the rounds, which are many."""
    logs = random.normal(0, between, starts) + random.normal(0, ROUNDS, starts)
    return [of_log(log, 1.96 * ROUNDS, 10) for log in logs]


def test_one_start_is_itself() -> None:
    one = estimate(2.0)
    assert over_starts([one]) is mean_over_starts([one]) is one


def test_students_interval_over_the_starts() -> None:
    values = [1.0, 1.1, 1.25]
    found = over_starts([estimate(value) for value in values])
    logs = np.log(values)
    half = 4.302653 * logs.std(ddof=1) / math.sqrt(3)  # t of 2 degrees of freedom
    assert found.value == pytest.approx(1.375 ** (1 / 3))
    assert (found.low, found.high) == pytest.approx(tuple(np.exp([logs.mean() - half, logs.mean() + half])))
    assert (found.n, found.starts) == (30, 3)
    mean = mean_over_starts([Estimate(value, value, value, 10) for value in (-1.0, 0.0, 4.0)])
    assert mean.value == 1.0
    assert mean.half_width == pytest.approx(4.302653 * math.sqrt(7) / math.sqrt(3))


def test_starts_that_agree_by_chance_do_not_make_rounds_surer() -> None:
    found = over_starts([estimate(1.0, half_width=0.05)] * 4)
    assert found.log_half_width == pytest.approx(0.05 / 2)
    assert mean_over_starts([Estimate(1.0, 0.9, 1.1, 10)] * 4).half_width == pytest.approx(0.1 / 2)


def test_several_starts_on_both_sides_are_welchs() -> None:
    one, other = [1.0, 1.1, 1.25], [0.8, 0.9, 0.85, 1.05]
    found = ratio_of_starts([estimate(v, 0.0) for v in one], [estimate(v, 0.0) for v in other], 0.5)
    test = stats.ttest_ind(np.log(one), np.log(other), equal_var=False).confidence_interval(0.95)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((test.low, test.high))
    assert found.starts == 3
    assert ratio_of_starts([estimate(1.0, 0.0)] * 2, [estimate(2.0, 0.0)] * 2, 0.5).half_width == 0.0


def test_with_one_start_what_starts_differ_by_is_assumed() -> None:
    one, several = [estimate(1.0, 0.04)], [estimate(2.0, 0.03)] * 3
    both = ratio_of_starts(one, one, 0.03)
    assert both.log_half_width == pytest.approx(math.hypot(0.04, 0.04, 1.959964 * 0.03 * math.sqrt(2)))
    mixed = ratio_of_starts(several, one, 0.03)
    rounds = math.hypot(0.04, 0.03 / math.sqrt(3))
    assert mixed.log_half_width == pytest.approx(math.hypot(rounds, 1.959964 * 0.03 * math.sqrt(4 / 3)))
    assert (mixed.value, mixed.starts) == (pytest.approx(2.0), 1)


def test_starts_that_scatter_more_than_is_assumed_are_believed() -> None:
    """Three starts with a standard deviation of 10% against one: the 10% is on both sides, t of 2 degrees."""
    several = [of_log(log, 0.0, 10) for log in (-0.1, 0.0, 0.1)]
    found = ratio_of_starts(several, [estimate(1.0, 0.0)], 0.03)
    assert found.log_half_width == pytest.approx(4.302653 * 0.1 * math.sqrt(1 + 1 / 3))
    swapped = ratio_of_starts([estimate(1.0, 0.0)], several, 0.03)
    assert swapped.log_half_width == pytest.approx(found.log_half_width)


def test_without_an_assumption_it_is_the_ratio_of_two_runs() -> None:
    one, other = estimate(1.0, 0.04), estimate(2.0, 0.03)
    assert ratio_of_starts([one], [other], 0.0) == unpaired_ratio(one, other)


@pytest.mark.parametrize("starts", [1, 2, 3, 5])
def test_the_ratio_of_equal_programs_holds_1_as_often_as_it_says(starts: int) -> None:
    """Starts differ as is assumed, planted: 95% of the intervals hold 1, and 2.5% lie below it."""
    random = np.random.default_rng(starts)
    found = [
        ratio_of_starts(drawn(random, starts), drawn(random, starts), BETWEEN_STARTS) for _ in range(REPEATS)
    ]
    covered = sum(not each.excludes(1.0) for each in found) / REPEATS
    assert 0.935 < covered < 0.99  # above 95% where two starts leave Welch few degrees of freedom
    assert sum(each.high < 1 for each in found) / REPEATS < 0.04


@pytest.mark.parametrize("starts", [2, 3, 5])
def test_the_mean_over_starts_covers_too(starts: int) -> None:
    random = np.random.default_rng(starts)
    found = [over_starts(drawn(random, starts)) for _ in range(REPEATS)]
    assert 0.935 < sum(not each.excludes(1.0) for each in found) / REPEATS < 0.99


def test_the_rounds_alone_raise_false_alarms() -> None:
    """What is wrong with the interval of two runs' rounds: starts that differ leave it."""
    random = np.random.default_rng(0)
    found = [unpaired_ratio(drawn(random, 1)[0], drawn(random, 1)[0]) for _ in range(REPEATS)]
    assert sum(each.high < 1 for each in found) / REPEATS > 0.1


def test_normal_quantile() -> None:
    assert t_quantile(math.inf) == pytest.approx(1.959964)


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
