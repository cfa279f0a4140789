"""The fitted model, and which of its variants are chosen by what they have not seen."""

from __future__ import annotations

import numpy as np
import pytest

from raybench.analysis.collectives import Link, LinkKey, SweptPlace
from raybench.analysis.simulate.fit import USUAL, Posterior, chosen, fitted
from raybench.analysis.simulate.model import (
    INDEX,
    MEANS,
    Places,
    Units,
    Variant,
    all_reduce_line,
    parts,
    swept_lines,
)
from raybench.analysis.simulate.predict import fit
from raybench.analysis.simulate.steps import MeasuredPoint, Question, Shape
from raybench.analysis.stats.statistics import of_log
from tests.support.planted.simulated_scaling import AdaptDL, Buckets, Law, Universal

UNITS = Units(0.1, 16)
SHAPES = [Shape((w,) * m) for m in (1, 2, 3, 4) for w in (1, 2, 4) if w * m <= 16]
BATCHES = (16, 32, 64, 128, 256)
FAR = [Question(Shape((4,) * m), batch) for m in (8, 16) for batch in (16, 128)]
PLANTED = {
    "compute_scale": 0.1,
    "device_spread": np.log(0.02),
    "far_s_per_byte": np.log(1 / 1.2e9),
    "local_s_per_byte": np.log(1 / 12e9),
    "gradient_bytes": np.log(250e6),
    "hidden_share": 0.8,
    "two_nodes": 0.3,
}


def planted() -> np.ndarray:
    values = MEANS.copy()
    for name, value in PLANTED.items():
        values[INDEX[name]] = value
    return values


def steps_s(asked: list[Question], variant: Variant = "ring") -> np.ndarray:
    return np.exp(parts(planted(), Places.of(asked), UNITS, variant).log_step)


def measured(noise: float = 0.0, variant: Variant = "ring", seed: int = 3) -> list[MeasuredPoint]:
    asked = [Question(shape, batch) for shape in SHAPES for batch in BATCHES]
    errors = (
        np.exp(np.random.default_rng(seed).normal(0, noise, len(asked))) if noise else np.ones(len(asked))
    )
    times_s = steps_s(asked, variant) * errors
    return [
        MeasuredPoint(each.shape, each.batch_size, float(time_s))
        for each, time_s in zip(asked, times_s, strict=True)
    ]


def ratio(found: Posterior, asked: list[Question]) -> np.ndarray:
    return np.exp(found.with_effects_of(asked).slopes(asked).parts.log_step) / steps_s(asked, found.variant)


@pytest.mark.parametrize("variant", ["ring", "tree", "hierarchical"])
def test_the_planted_law_is_found_again_at_four_times_the_devices(variant: Variant) -> None:
    found = fitted(measured(variant=variant), variant)
    assert ratio(found, FAR) == pytest.approx(1.0, abs=0.03)


def test_parameters_that_steps_alone_tell_come_back() -> None:
    found = fitted(measured(0.01), "ring")
    at = found.values

    def product(one: str, other: str) -> float:  # bytes over rate: steps tell no more
        return float(at[INDEX[one]] + at[INDEX[other]] - PLANTED[one] - PLANTED[other])

    assert product("gradient_bytes", "far_s_per_byte") == pytest.approx(0, abs=0.1)
    assert at[INDEX["two_nodes"]] == pytest.approx(PLANTED["two_nodes"], abs=0.12)
    for name in ("compute_scale", "hidden_share"):
        deviation = found.covariance[INDEX[name], INDEX[name]] ** 0.5
        assert abs(at[INDEX[name]] - PLANTED[name]) < 3 * deviation
    assert found.noise < 0.03


def test_outliers_count_little() -> None:
    points = measured(0.01)
    disturbed = [
        MeasuredPoint(each.shape, each.batch_size, each.step_time_s * (3.0 if index % 12 == 5 else 1.0))
        for index, each in enumerate(points)
    ]
    assert ratio(fitted(disturbed, "ring"), FAR) == pytest.approx(1.0, abs=0.06)


def test_the_same_points_give_the_same_numbers() -> None:
    one, other = (fitted(measured(0.05), "ring") for _ in range(2))
    assert (one.values == other.values).all()


def test_another_unit_of_time_changes_nothing_else() -> None:
    points = measured(0.02)
    scaled = [MeasuredPoint(each.shape, each.batch_size, each.step_time_s * 3) for each in points]
    one, other = fitted(points, "ring"), fitted(scaled, "ring")
    asked = FAR[:1]
    ratios = [
        found.with_effects_of(asked).slopes(asked).parts.log_step[0]
        - found.slopes(points[:1]).parts.log_step[0]
        for found in (one, other)
    ]
    assert ratios[0] == pytest.approx(ratios[1], abs=0.05)


def line(world_size: int, nodes: int, latency_s: float, s_per_byte: float) -> Link:
    return Link(
        "all_reduce",
        SweptPlace(world_size, nodes, "pack", "gloo"),
        of_log(float(np.log(latency_s)), 0.05, 10),
        of_log(float(-np.log(s_per_byte)), 0.05, 10),
        (latency_s, s_per_byte),
        (),
    )


def swept(places: list[tuple[int, int]]) -> dict[LinkKey, Link]:
    """A sweep of the planted network."""
    found = {}
    for world_size, nodes in places:
        at = Places.of([Question(Shape.even(world_size, nodes), 1)])
        latency_s, s_per_byte = (float(each[0]) for each in all_reduce_line(planted(), at, "ring"))
        found[LinkKey("all_reduce", world_size, nodes)] = line(world_size, nodes, latency_s, s_per_byte)
    return found


def test_with_a_sweep_the_steps_tell_the_gradient_bytes() -> None:
    lines = swept_lines(swept([(2, 1), (4, 1), (2, 2), (8, 2), (16, 4)]))
    assert lines is not None
    assert lines.crosses_nodes
    found = fitted(measured(0.01), "ring", lines)
    assert found.values[INDEX["gradient_bytes"]] == pytest.approx(PLANTED["gradient_bytes"], abs=0.15)


def test_one_node_and_a_sweep_predict_several() -> None:
    points = [each for each in measured(0.01) if each.shape.nodes == 1]
    lines = swept_lines(swept([(2, 1), (4, 1), (2, 2), (8, 2), (16, 4)]))
    asked = [Question(Shape((4, 4, 4, 4)), 16)]
    with_sweep, without = (fitted(points, "ring", each) for each in (lines, None))
    assert ratio(with_sweep, asked) == pytest.approx(1.0, abs=0.25)
    assert abs(np.log(ratio(with_sweep, asked))) < abs(np.log(ratio(without, asked)))


def test_a_sweep_of_one_node_says_nothing_of_the_network() -> None:
    lines = swept_lines(swept([(2, 1), (4, 1)]))
    assert lines is not None
    assert not lines.crosses_nodes
    assert swept_lines({}) is None
    assert swept_lines(None) is None


def test_compute_that_was_told_apart_helps() -> None:
    points = [each for each in measured() if each.shape.world_size >= 8 and each.batch_size == 16]
    asked = [Question(Shape((1,)), 16)]
    told = [
        MeasuredPoint(each.shape, each.batch_size, each.step_time_s, float(steps_s(asked)[0]) * 1.02)
        for each in points
    ]
    assert ratio(fitted(told, "ring"), asked) == pytest.approx(1.0, abs=0.1)


def test_points_with_a_large_error_count_less() -> None:
    points = measured()
    worse = [
        MeasuredPoint(each.shape, each.batch_size, each.step_time_s * 1.4, None, 0.5)
        if each.shape.nodes == 4
        else MeasuredPoint(each.shape, each.batch_size, each.step_time_s, None, 0.01)
        for each in points
    ]
    assert ratio(fitted(worse, "ring"), FAR) == pytest.approx(1.0, abs=0.15)


def test_with_a_sweep_another_level_is_no_longer_refused() -> None:
    points = [each for each in measured(0.01) if each.shape.nodes == 1]
    asked = [Question(Shape((4, 4)), 16), Question(Shape((4,) * 8), 16)]
    without, with_sweep = fit(points), fit(points, swept([(2, 1), (4, 1), (2, 2), (8, 2), (16, 4)]))
    assert without.predict(asked)[0].refused == "network not crossed"
    assert fit(points, swept([(2, 1), (4, 1)])).predict(asked)[0].refused == "network not crossed"
    answers = with_sweep.predict(asked)
    for answer, truth_s in zip(answers, steps_s(asked), strict=True):
        assert answer.step_time_s is not None
        assert not answer.step_time_s.excludes(float(truth_s))


def test_a_sweep_tells_of_hops_that_take_milliseconds() -> None:
    """Believed to be rare, they are predicted too fast without it."""
    law = Buckets("ring", 0.02, 0.002, (100e6,) * 4, (1e-3, 1 / 8e9), (4e-3, 1 / 1.5e9), 0.05, 0.02, 0.02)
    points = [
        MeasuredPoint(shape, batch, law.step_time_s(shape, batch))
        for shape in [*SHAPES, Shape((1,) * 8), Shape((2,) * 8), Shape((1,) * 16)]
        for batch in (16, 64)
    ]
    lines = {}
    for world_size, nodes in ((2, 1), (4, 1), (4, 4), (8, 2), (16, 4), (8, 8), (16, 16)):
        shape = Shape.even(world_size, nodes)
        latency_s = law.all_reduce_s(shape, 0.0)
        lines |= {
            LinkKey("all_reduce", world_size, nodes): line(
                world_size, nodes, latency_s, (law.all_reduce_s(shape, 1e9) - latency_s) / 1e9
            )
        }
    asked = Question(Shape((4,) * 16), 16)
    truth_s = law.step_time_s(asked.shape, asked.batch_size)
    without, with_sweep = (fit(points, each).predict([asked])[0].step_time_s for each in (None, lines))
    assert without is not None
    assert with_sweep is not None
    assert not with_sweep.excludes(truth_s)
    assert abs(np.log(with_sweep.value / truth_s)) < abs(np.log(without.value / truth_s))


def drawn(law: Law, sizes: tuple[int, ...] = (1, 2, 4, 8, 16)) -> list[MeasuredPoint]:
    shapes = [Shape((1,) * n) for n in sizes]
    return [
        MeasuredPoint(each, batch, law.step_time_s(each, batch)) for each in shapes for batch in (32, 128)
    ]


def test_what_all_wait_for_in_turn_is_seen_at_larger_sizes() -> None:
    law = Universal(0.02, 0.002, 0.03, 0.0)
    names, held_out = chosen(drawn(law), None)
    assert "shared" in names
    assert held_out is not None
    assert held_out < 0.2
    asked = Question(Shape((1,) * 32), 32)
    answer = fit(drawn(law)).predict([asked])[0].step_time_s
    assert answer is not None
    assert answer.value == pytest.approx(law.step_time_s(asked.shape, asked.batch_size), rel=0.15)


def test_adaptdls_own_law_is_predicted() -> None:
    law = AdaptDL((0.02, 0.002), (0.02, 0.001), (0.1, 0.004), 2.0)
    found = fit(drawn(law))
    asked = Question(Shape((1,) * 32), 32)
    answer = found.predict([asked])[0].step_time_s
    assert answer is not None
    assert answer.value == pytest.approx(law.step_time_s(asked.shape, asked.batch_size), rel=0.25)
    assert found.held_out_error is not None


def test_without_larger_sizes_the_usual_ones_stay_and_no_error_is_claimed() -> None:
    one = [MeasuredPoint(Shape((4,)), 32, 0.1), MeasuredPoint(Shape((4,)), 64, 0.15)]
    assert chosen(one, None) == (USUAL, None)
    assert fit(one).held_out_error is None


def test_a_level_that_was_not_crossed_is_no_test() -> None:
    """One node is fitted, several would be held out: that error is not the model's."""
    points = [MeasuredPoint(Shape((n,)), 32, 0.1 + 0.01 * n) for n in (1, 2, 4)]
    points.append(MeasuredPoint(Shape((4, 4)), 32, 0.5))
    assert chosen(points, None)[1] is None


def test_two_fitted_sizes_choose_nothing_unusual() -> None:
    points = [MeasuredPoint(Shape((n,)), 32, 0.1 * (1 + 0.05 * (n - 1))) for n in (1, 2, 4)]
    names, held_out = chosen(points, None)
    assert set(names) <= set(USUAL)
    assert held_out is not None
