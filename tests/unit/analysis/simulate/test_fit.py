"""The fitted model: a planted law comes back, a sweep of the network helps, what the form stands for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from raybench.analysis.collectives import Link, SweptPlace
from raybench.analysis.simulate.fit import (
    BUCKET_BYTES,
    FORM,
    Model,
    Places,
    Sweep,
    expected_maximum,
    fit,
    without_pairs,
)
from raybench.analysis.simulate.steps import Measurement, Question, Shape
from raybench.analysis.stats.statistics import of_log
from tests.support.planted.simulated_scaling import AdaptDL, Ernest, Law, measured_step

SHAPES = [Shape((w,) * m) for m in (1, 2, 3, 4) for w in (1, 2, 4)]
BATCHES = (16, 32, 64, 128)
FAR = [Question(Shape((4,) * m), batch) for m in (8, 16) for batch in (16, 128)]
MODEL = Model(FORM, 0.1, 16)
# fixed, each, spread, log p, crossed, devices, local
PLANTED = np.array([0.5, 0.4, 0.02, math.log(1.5), 0.8, 0.2, 0.1])


def steps_s(asked: list[Question]) -> np.ndarray:
    return np.exp(MODEL.log_step(PLANTED, Places.of(asked)))


def measured(noise: float = 0.0, seed: int = 3) -> list[Measurement]:
    asked = [Question(shape, batch) for shape in SHAPES for batch in BATCHES]
    times_s = steps_s(asked) * np.exp(np.random.default_rng(seed).normal(0, noise, len(asked)))
    return [
        measured_step(each.shape, each.batch_size, float(time_s))
        for each, time_s in zip(asked, times_s, strict=True)
    ]


def ratio(points: list[Measurement], asked: list[Question], sweep: Sequence[Link] = ()) -> np.ndarray:
    return np.exp(fit(points, sweep).log_step(Places.of(asked))[0]) / steps_s(asked)


def test_the_planted_law_is_found_again_at_four_times_the_devices() -> None:
    assert ratio(measured(), FAR) == pytest.approx(1.0, abs=0.05)


def test_intervals_hold_the_planted_law() -> None:
    for seed in range(10):
        for answer, truth_s in zip(fit(measured(0.04, seed)).predict(FAR), steps_s(FAR), strict=True):
            assert answer.step_time_s is not None
            assert not answer.step_time_s.excludes(float(truth_s))
            assert answer.step_time_s.relative_half_width < 0.32


def test_outliers_count_little() -> None:
    disturbed = [
        replace(each, step_time_s=each.step_time_s.scaled(3.0 if index % 12 == 5 else 1.0))
        for index, each in enumerate(measured(0.01))
    ]
    assert ratio(disturbed, FAR) == pytest.approx(1.0, abs=0.15)


def test_the_same_points_give_the_same_numbers() -> None:
    one, other = (fit(measured(0.05)).posterior for _ in range(2))
    assert (one.values == other.values).all()


def test_another_unit_of_time_changes_nothing_else() -> None:
    points = measured(0.02)
    scaled = [replace(each, step_time_s=each.step_time_s.scaled(1e3)) for each in points]
    assert ratio(scaled, FAR) == pytest.approx(1e3 * ratio(points, FAR), rel=1e-4)


def test_the_noise_of_a_repeat_is_learned() -> None:
    assert fit(measured(0.01)).posterior.noise < 0.035
    assert fit(measured(0.10)).posterior.noise > 0.07


def test_points_with_a_large_error_count_less() -> None:
    worse = [
        measured_step(each.shape, each.batch_size, each.step_time_s.value * factor, log_error)
        for each in measured()
        for factor, log_error in [(1.4, 0.5) if each.shape.nodes == 4 else (1.0, 0.01)]
    ]
    assert ratio(worse, FAR) == pytest.approx(1.0, abs=0.2)


def test_compute_that_was_measured_separately_helps() -> None:
    """Where no single device was measured."""
    points = [each for each in measured() if each.shape.world_size >= 8 and each.batch_size == 16]
    alone_s = float(steps_s([Question(Shape((1,)), 16)])[0])
    given = [replace(each, compute_s=alone_s * 1.02) for each in points]
    assert fit(given).compute_s(16).value == pytest.approx(alone_s, rel=0.05)


def test_two_nodes_are_left_out_where_three_larger_numbers_are_known() -> None:
    points = [measured_step(Shape((1,) * m), 32, 0.1) for m in (1, 2, 3, 4, 6)]
    assert [each.shape.nodes for each in without_pairs(points)] == [1, 3, 4, 6]
    assert without_pairs(points[:-1]) == points[:-1]


@pytest.mark.parametrize("count", [2, 4, 16, 64])
def test_the_largest_of_normal_values(count: int) -> None:
    grid = np.linspace(-9, 9, 20_001)
    density = count * norm.pdf(grid) * norm.cdf(grid) ** (count - 1)
    exact = float((grid * density).sum() * (grid[1] - grid[0]))
    assert expected_maximum(np.array([count]))[0] == pytest.approx(exact, rel=0.05)


def test_the_largest_of_one_is_the_mean() -> None:
    assert expected_maximum(np.array([1.0]))[0] == 0


def swept(places: list[tuple[int, int]]) -> list[Link]:
    """A sweep of the planted network: a step has ten buckets' time, a tenth of it latency."""
    found = []
    for world_size, nodes in places:
        at = Places.of([Question(Shape.even(world_size, nodes), 1)])
        time_s = float(np.exp(MODEL.log_communication(PLANTED, at))[0]) / 10
        line = (0.1 * time_s, 0.9 * time_s / BUCKET_BYTES)
        known = (of_log(math.log(value), 0.05, 10) for value in (line[0], 1 / line[1]))
        found.append(Link("all_reduce", SweptPlace(world_size, nodes, "pack", "gloo"), *known, line))
    return found


NETWORK = [(2, 1), (4, 1), (2, 2), (8, 2), (4, 4), (16, 4)]


def test_one_node_and_a_sweep_predict_several() -> None:
    points = [each for each in measured(0.01) if each.shape.nodes == 1]
    asked = [Question(Shape((4, 4, 4, 4)), 16)]
    with_sweep, without = (ratio(points, asked, each) for each in (swept(NETWORK), ()))
    assert with_sweep == pytest.approx(1.0, abs=0.35)
    assert abs(np.log(with_sweep)) < abs(np.log(without))


def test_with_a_sweep_another_level_is_no_longer_refused() -> None:
    points = [each for each in measured(0.01) if each.shape.nodes == 1]
    asked = [Question(Shape((4, 4)), 16), Question(Shape((4,) * 8), 16)]
    assert fit(points).predict(asked)[0].refused == "network not crossed"
    assert fit(points, swept(NETWORK[:2])).predict(asked)[0].refused == "network not crossed"
    for answer, truth_s in zip(fit(points, swept(NETWORK)).predict(asked), steps_s(asked), strict=True):
        assert answer.step_time_s is not None
        assert not answer.step_time_s.excludes(float(truth_s))


def test_without_an_all_reduce_there_is_no_sweep() -> None:
    assert Sweep.of(()) is None


def test_of_two_placements_with_equally_many_nodes_the_first_counts() -> None:
    lines = swept([(2, 1)])
    spread = [replace(each, line=(1.0, 1.0)) for each in lines]
    known, both = Sweep.of(lines), Sweep.of([*lines, *spread])
    assert known is not None
    assert both is not None
    assert both.log_time_s == pytest.approx(known.log_time_s)


@pytest.mark.parametrize(
    "law", [AdaptDL((0.02, 0.002), (0.02, 0.001), (0.1, 0.004), 2.0), Ernest(0.02, 0.002, 0.01, 0.0005)]
)
def test_the_laws_of_others_are_predicted(law: Law) -> None:
    points = [
        measured_step(Shape((1,) * n), batch, law.step_time_s(Shape((1,) * n), batch))
        for n in (1, 2, 4, 8, 16)
        for batch in (32, 128)
    ]
    asked = Question(Shape((1,) * 32), 32)
    answer = fit(points).predict([asked])[0].step_time_s
    assert answer is not None
    assert answer.value == pytest.approx(law.step_time_s(asked.shape, asked.batch_size), rel=0.2)
