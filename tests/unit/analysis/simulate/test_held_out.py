"""Variants are chosen by their error at larger world sizes than they have seen."""

from __future__ import annotations

import pytest

from raybench.analysis.simulate.fit import USUAL, chosen
from raybench.analysis.simulate.predict import fit
from raybench.analysis.simulate.steps import MeasuredPoint, Question, Shape
from tests.support.planted.simulated_scaling import AdaptDL, Law, Universal


def measured(law: Law, sizes: tuple[int, ...] = (1, 2, 4, 8, 16)) -> list[MeasuredPoint]:
    shapes = [Shape((1,) * n) for n in sizes]
    return [
        MeasuredPoint(each, batch, law.step_time_s(each, batch)) for each in shapes for batch in (32, 128)
    ]


def test_what_all_wait_for_in_turn_is_seen_at_larger_sizes() -> None:
    law = Universal(0.02, 0.002, 0.03, 0.0)
    names, held_out = chosen(measured(law), None)
    assert "shared" in names
    assert held_out is not None
    assert held_out < 0.2
    asked = Question(Shape((1,) * 32), 32)
    answer = fit(measured(law)).predict([asked])[0].step_time_s
    assert answer is not None
    assert answer.value == pytest.approx(law.step_time_s(asked.shape, asked.batch_size), rel=0.15)


def test_adaptdls_own_law_is_predicted() -> None:
    law = AdaptDL((0.02, 0.002), (0.02, 0.001), (0.1, 0.004), 2.0)
    found = fit(measured(law))
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
