"""The estimator: closed forms, then its coverage through the stopping rule and heavy tails."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from raybench.analysis.stats.efficiency import Verdict, gain, scaling
from raybench.analysis.stats.statistics import (
    Estimate,
    device_factors,
    geometric,
    relative_half_width,
    trimmed_mean,
    unpaired_ratio,
)
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
    return request(**{"variants": ("plain", "synced"), "measure": MeasureSpec(half_width=0.05)} | fields)


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
        versus=default,
        variants=("synced", "versus"),
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
