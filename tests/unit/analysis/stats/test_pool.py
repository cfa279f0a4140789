"""One fit of all visits: levels, ratios and their intervals against planted truths."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import trim_mean
from scipy.stats.mstats import trimmed_mean_ci

from raybench.analysis.stats.pool import Pool, Visit, Weights
from raybench.machine.environment import Spreads
from tests.unit.analysis.stats.simulated_visits import KNOWN, Machine, pooled

STEP_S = {"alone": 0.010, "default": 0.0125, "winner": 0.011, "other": 0.013}
RATIO: Weights = {"default": 1.0, "winner": -1.0}
EFFICIENCY: Weights = {"alone": 1.0, "default": -1.0}
NO_STARTS = replace(KNOWN, start=1e-9, start_unit=1e-9)
SIMULATED = 60  # of which one in 20 may miss: fewer than 53 hits have a chance of 0.4%
LEAST_HITS = 53


def series(*seconds: float) -> np.ndarray:
    return np.log(np.array(seconds))


# --- levels


@pytest.mark.parametrize("rounds", [10, 12, 19, 20, 37])
def test_a_level_from_ten_rounds_on_is_scipys_trimmed_mean_of_the_logarithms(rounds: int) -> None:
    logs = np.random.default_rng(rounds).standard_t(3, rounds) * 0.05 + math.log(0.01)
    found = pooled([Visit(0, 0, {"u": logs})])
    assert found.log("u") == pytest.approx(trim_mean(logs, 0.1), rel=1e-12)
    low, high = trimmed_mean_ci(logs, (0.1, 0.1), inclusive=(True, True))
    assert low < found.log("u") < high


@pytest.mark.parametrize("rounds", [2, 3, 5, 9])
def test_a_level_of_fewer_rounds_is_their_mean(rounds: int) -> None:
    logs = np.random.default_rng(rounds).standard_normal(rounds) * 0.05
    assert pooled([Visit(0, 0, {"u": logs})]).log("u") == pytest.approx(logs.mean(), abs=1e-12)


def test_rounds_without_a_block_are_left_out_of_its_level() -> None:
    logs = np.array([0.1, np.nan, 0.3, 0.2, np.nan, 0.2])
    found = pooled([Visit(0, 0, {"u": logs, "v": np.zeros(6)})])
    assert found.log("u") == pytest.approx(0.2)
    assert found.contrast({"u": 1.0}).n == 4
    assert found.contrast({"u": 1.0, "v": -1.0}).n == 4


def test_ten_percent_of_slow_blocks_do_not_move_a_level_and_are_in_the_mean_step() -> None:
    """Two of twenty blocks take twice as long: a mean step of 10% more."""
    seconds = [0.010] * 20
    for place in (3, 11):
        seconds[place] = 0.020
    found = pooled([Visit(0, 0, {"u": series(*seconds)})])
    assert found.time("u").value == pytest.approx(0.010)
    mean = found.mean({"u": 1.0})
    assert mean.ratio().value == pytest.approx(0.011)
    assert mean.sd > found.contrast({"u": 1.0}).sd


def test_the_mean_step_of_even_blocks_is_the_typical_one() -> None:
    found = pooled([Visit(0, 0, {"u": series(*[0.01] * 12)})])
    assert found.mean({"u": 1.0}).mean == pytest.approx(found.contrast({"u": 1.0}).mean)
    assert found.mean({"u": 1.0}).sd == pytest.approx(found.contrast({"u": 1.0}).sd)


# --- one trial


def test_one_trial_recovers_its_levels_exactly() -> None:
    quiet = Machine(STEP_S, Spreads(0, 0, 0, 0), block=0.0, shared=0.0)
    found = pooled([quiet.visit(*STEP_S)])
    for unit, seconds in STEP_S.items():
        assert found.time(unit).value == pytest.approx(seconds, rel=1e-9)
        assert found.time(unit).visits == 1
    assert found.contrast(EFFICIENCY).ratio().value == pytest.approx(0.8)


def test_what_a_round_has_in_common_cancels_in_a_ratio() -> None:
    """Rounds that differ by 20% and more, blocks by a thousandth: the ratio is as sharp as the blocks."""
    certain = replace(NO_STARTS, trial=1e-9, unit=1e-9)
    machine = Machine(STEP_S, certain, block=0.001, shared=0.2)
    found = pooled([machine.visit("alone", "default", rounds=12)], certain, is_certain=True)
    assert found.contrast(EFFICIENCY).half < 0.002
    assert found.contrast({"alone": 1.0}).half > 0.03


def test_a_trial_says_less_than_its_rounds_alone() -> None:
    """What is constant in a trial its rounds cannot show: it is in the interval."""
    found = pooled([Machine(STEP_S, block=0.001, shared=0.0).visit("alone", "default")])
    assert found.contrast({"alone": 1.0}).sd > 0.5 * KNOWN.trial
    assert 0.5 * KNOWN.unit < found.contrast(EFFICIENCY).sd < KNOWN.trial


# --- several


def test_three_visits_have_a_narrower_interval_than_one() -> None:
    machine = Machine(STEP_S, NO_STARTS)
    visits = machine.visits(*[("alone", "default")] * 3)
    one, three = pooled(visits[:1]), pooled(visits)
    assert (one.time("alone").visits, three.time("alone").visits) == (1, 3)
    asked: tuple[Weights, ...] = (EFFICIENCY, {"default": 1.0})
    for weights in asked:
        assert three.contrast(weights).half < 0.8 * one.contrast(weights).half


def test_a_comparison_through_an_anchor_is_sharper_than_one_without() -> None:
    machine = Machine(STEP_S, NO_STARTS)
    apart = pooled(machine.visits(("default",), ("winner",)))
    anchored = pooled(machine.visits(("default",), ("winner", "default")))
    assert anchored.contrast(RATIO).half < 0.7 * apart.contrast(RATIO).half


def test_two_that_were_never_in_one_trial_are_compared_through_what_both_had() -> None:
    """Without the anchor the slow hour of the second would be in the ratio: 0.45."""
    slow_hour = 0.3
    first = Visit(0, 0, {"default": np.zeros(12), "winner": np.full(12, -0.1)})
    second = Visit(0, 0, {name: logs + slow_hour for name, logs in first.logs.items()})
    second = Visit(0, 0, {"default": second.logs["default"], "other": np.full(12, slow_hour + 0.05)})
    found = pooled([first, second]).contrast({"other": 1.0, "winner": -1.0})
    assert found.mean == pytest.approx(0.15, abs=0.03)
    assert found.half < slow_hour


def held(design: Callable[[Machine], list[Visit]], weights: Weights, spreads: Spreads = NO_STARTS) -> int:
    """In how many simulated studies the interval of a contrast holds its truth in that run."""
    hits = 0
    for seed in range(SIMULATED):
        machine = Machine(STEP_S, spreads, seed=1000 + seed)
        visits = design(machine)
        found = pooled(visits).contrast(weights)
        truth = machine.in_run(weights, {each.group for each in visits})
        hits += abs(found.mean - truth) <= found.half
    return hits


def test_intervals_hold_planted_ratios_of_one_trial() -> None:
    assert held(lambda machine: [machine.visit("alone", "default")], EFFICIENCY) >= LEAST_HITS


@pytest.mark.promise("one fit")
def test_intervals_hold_planted_ratios_of_anchored_visits() -> None:
    def design(machine: Machine) -> list[Visit]:
        return machine.visits(
            ("alone", "default"), ("winner", "default"), ("alone", "default"), ("other", "default")
        )

    assert held(design, RATIO) >= LEAST_HITS


def test_intervals_hold_planted_ratios_of_several_starts() -> None:
    def design(machine: Machine) -> list[Visit]:
        return [
            machine.visit(*units, group=group)
            for group in range(3)
            for units in (("alone", "default"), ("winner", "default"))
        ]

    assert held(design, RATIO, KNOWN) >= LEAST_HITS


# --- starts


def test_a_contrast_between_settings_of_different_starts_holds_what_starts_differ_by() -> None:
    machine = Machine(STEP_S, KNOWN)
    visits = [
        machine.visit("default", "winner", group=0),
        machine.visit("default", "winner", group=0),
        machine.visit("other", group=1),
        machine.visit("other", group=1),
    ]
    found = pooled(visits)
    within, across = found.contrast(RATIO), found.contrast({"default": 1.0, "other": -1.0})
    assert across.half > 1.96 * KNOWN.start
    assert within.half < KNOWN.start


def test_a_run_is_of_the_starts_that_it_had() -> None:
    machine = Machine(STEP_S, KNOWN)
    one = pooled([machine.visit("default", "winner", group=0) for _ in range(3)])
    three = pooled([machine.visit("default", "winner", group=group) for group in range(3)])
    assert (one.contrast(RATIO).starts, three.contrast(RATIO).starts) == (1, 3)
    assert three.contrast(RATIO).sd_again < one.contrast(RATIO).sd_again


@pytest.mark.parametrize("weights", [RATIO, EFFICIENCY, {"default": 1.0}])
@pytest.mark.parametrize("groups", [1, 3])
def test_the_interval_of_another_run_contains_that_of_this_one(weights: Weights, groups: int) -> None:
    machine = Machine(STEP_S, KNOWN)
    found = pooled([machine.visit(*STEP_S, group=group) for group in range(groups)]).contrast(weights)
    for estimate in (found.ratio(), found.ratio(3.0), found.sum(found.mean)):
        assert estimate.again is not None
        assert estimate.again[0] < estimate.low < estimate.value < estimate.high < estimate.again[1]


def test_another_run_is_not_interrupted_where_this_one_was() -> None:
    """It has the starts that were planned: one, over which nothing of a start is averaged."""
    hits = 0
    for seed in range(SIMULATED):
        machine = Machine(STEP_S, KNOWN, seed=3000 + seed)
        this = [machine.visit("default", group=group) for group in (0, 1, 2)]
        found = pooled(replace(each, planned=0) for each in this).contrast({"default": 1.0})
        other = pooled([machine.visit("default", group=3) for _ in range(3)]).contrast({"default": 1.0})
        again = found.ratio().again
        assert again is not None
        hits += again[0] <= math.exp(other.mean) <= again[1]
    assert hits >= LEAST_HITS


# --- several at once


def equal_settings(seed: int, number: int = 12) -> tuple[Pool, list[Weights]]:
    """A default and ``number`` settings that are truly as fast; each in one trial with it."""
    names = [f"setting {place}" for place in range(number)]
    machine = Machine(dict.fromkeys(["default", *names], 0.01), NO_STARTS, seed=seed)
    visits = machine.visits(("default",), *(("default", name) for name in names))
    return pooled(visits), [{"default": 1.0, name: -1.0} for name in names]


def test_simultaneous_intervals_are_at_least_as_wide_as_single_ones() -> None:
    pool, asked = equal_settings(0)
    for found, half in pool.simultaneous(asked):
        assert half >= found.half
    assert max(half / found.half for found, half in pool.simultaneous(asked)) > 1.2
    ((one, half),) = pool.simultaneous(asked[:1])
    assert half == one.half


def test_of_twelve_equal_settings_seldom_one_is_called_different() -> None:
    studies = 30
    wrong = alone = 0
    for seed in range(studies):
        pool, asked = equal_settings(seed)
        wrong += any(abs(found.mean) > half for found, half in pool.simultaneous(asked))
        alone += any(abs(found.mean) > found.half for found, _ in pool.simultaneous(asked))
    assert wrong <= 4  # of 30 at 5%: more in 1.6% of such tests
    assert alone > wrong


def test_draws_agree_with_the_contrasts_and_are_the_same_each_time() -> None:
    machine = Machine(STEP_S, NO_STARTS)
    pool = pooled(machine.visits(("alone", "default"), ("winner", "default")))
    asked = [RATIO, EFFICIENCY]
    draws = pool.draws(asked)
    for found, column in zip(pool.contrasts(asked), draws.T, strict=True):
        assert column.mean() == pytest.approx(found.mean, abs=0.1 * found.sd)
        assert np.abs(column - found.mean).max() > found.half
        inside = (np.abs(column - found.mean) <= found.half).mean()
        assert inside == pytest.approx(0.95, abs=0.02)
    assert np.array_equal(draws, pool.draws(asked))
    assert not pool.draws([{}, {}]).any()  # of a unit over itself


# --- spreads


def test_visits_tell_what_trials_differ_by() -> None:
    calm, wild = (
        pooled(Machine(STEP_S, replace(NO_STARTS, trial=trial), seed=3).visits(*[("alone", "default")] * 12))
        for trial in (0.005, 0.12)
    )
    assert calm.spreads.trial < KNOWN.trial < wild.spreads.trial


def test_intervals_follow_a_machine_that_is_ten_times_as_uneven_as_any_known() -> None:
    """Of three visits: with a grid that ended at four times what is known 31 of 60 held the planted ratio."""
    hits = 0
    for seed in range(SIMULATED):
        machine = Machine(STEP_S, replace(NO_STARTS, unit=10 * KNOWN.unit), seed=seed)
        pool = pooled(machine.visits(*[("alone", "default", "winner")] * 3))
        found = pool.contrast(RATIO).ratio()
        hits += found.low <= STEP_S["default"] / STEP_S["winner"] <= found.high
    assert hits >= 48


def test_without_visits_the_spreads_are_what_is_known() -> None:
    assert pooled([]).spreads == KNOWN
    assert pooled([]).units == ()
    assert not pooled([]).has("alone")
    assert not pooled([]).has("alone")


def test_spreads_that_are_certain_are_not_learned() -> None:
    visits = Machine(STEP_S, replace(NO_STARTS, trial=0.2)).visits(*[("alone", "default")] * 6)
    found = pooled(visits, is_certain=True).spreads
    assert found.trial == pytest.approx(KNOWN.trial)
    assert found.unit == pytest.approx(KNOWN.unit)


def test_rounds_that_follow_one_another_count_for_less() -> None:
    """A slow wave in the ratio: as many rounds say less of it."""
    random = np.random.default_rng(0)
    noise = 0.01 * random.standard_normal(64)
    wave = 0.02 * np.sin(np.arange(64) / 5)
    certain = replace(NO_STARTS, trial=1e-9, unit=1e-9)
    shuffled, waving = (
        pooled([Visit(0, 0, {"a": noise + each, "b": np.zeros(64)})], certain, is_certain=True).contrast(
            {"a": 1.0, "b": -1.0}
        )
        for each in (random.permutation(wave), wave)
    )
    assert waving.half > 1.5 * shuffled.half
