"""Answers and refusals, on studies as small as users have them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from raybench.analysis.simulate.fit import fit
from raybench.analysis.simulate.steps import Expected, Measurement, Question, Shape
from tests.support.planted.simulated_scaling import measured_step

NOISE_HALF_WIDTH = 0.06  # relative: twice a repeat's least noise


def one_node(times_s: dict[int, float], batch: int = 32, **fields: float) -> list[Measurement]:
    return [measured_step(Shape((n,)), batch, time_s, **fields) for n, time_s in times_s.items()]


def asked(*sizes: int, batch: int = 32) -> list[Question]:
    return [Question(Shape((n,)), batch) for n in sizes]


SMALL = one_node({1: 0.100, 2: 0.108, 4: 0.118})
NODES_OF_4 = [
    measured_step(
        Shape.even(n, -(-n // 4)), batch, (0.05 + 0.001 * batch) * (1 + 0.03 * (n > 1)) + 0.02 * (n > 4)
    )
    for n in (1, 2, 4, 8, 16)
    for batch in (32, 128)
]


def sane(answers: list[Expected]) -> None:
    for answer in answers:
        step, efficiency = answer.step_time_s, answer.efficiency
        assert step is not None
        assert efficiency is not None
        assert 0 < step.low < step.value < step.high < math.inf
        assert 0 < efficiency.low < efficiency.value < efficiency.high
        assert efficiency.value < 1.001
        assert step.relative_half_width > NOISE_HALF_WIDTH


def test_three_sizes_of_one_node() -> None:
    answers = fit(SMALL).predict(asked(1, 2, 4, 8, 16, 32))
    sane(answers)
    steps = [answer.step_time_s for answer in answers if answer.step_time_s]
    assert all(one.value < other.value for one, other in pairwise(steps))
    assert all(one.relative_half_width < other.relative_half_width for one, other in pairwise(steps[2:]))
    assert steps[3].value == pytest.approx(0.135, rel=0.2)
    assert answers[3].naive_step_time_s == pytest.approx(0.118)


def test_a_larger_batch_is_more_efficient() -> None:
    answers = fit(NODES_OF_4).predict([Question(Shape((4,) * 8), batch) for batch in (32, 64, 128)])
    sane(answers)
    values = [answer.efficiency.value for answer in answers if answer.efficiency]
    assert values == sorted(values)


def test_strong_scaling() -> None:
    points = [measured_step(Shape((n,)), 256 // n, 0.02 + 0.3 / n + 0.02 * (n > 1)) for n in (1, 2, 4, 8)]
    found = fit(points)
    answers = found.predict([Question(Shape((n,)), 256 // n) for n in (4, 16)])
    sane(answers)
    assert answers[1].step_time_s is not None
    assert 0.03 < answers[1].step_time_s.value < 0.10
    assert answers[1].naive_step_time_s is None  # this batch was not measured
    assert found.compute_s(256).value == pytest.approx(0.32, rel=0.1)


def test_a_step_computes_the_batches_of_all_its_passes() -> None:
    """Of a global batch that one device takes in eight passes and eight devices in one."""
    points = [
        replace(
            measured_step(Shape((n,)), 32, 0.02 + 0.256 / n + 0.002 * (n > 1)),
            question=Question(Shape((n,)), 32, 256, 8 // n),
        )
        for n in (1, 2, 4, 8)
    ]
    found = fit(points)
    (answer,) = found.predict([Question(Shape((16,)), 16, 256, 1)])
    sane([answer])
    assert answer.step_time_s is not None
    assert answer.step_time_s.value == pytest.approx(0.038, rel=0.15)
    assert found.compute_s(256).value == pytest.approx(0.276, rel=0.1)


def test_negative_scaling_stays_negative() -> None:
    points = [
        measured_step(Shape((n,)), 32 // n, time_s)
        for n, time_s in ((1, 0.132), (2, 0.249), (4, 2.366), (8, 5.947))
    ]
    answers = fit(points).predict([Question(Shape((8,)), 4), Question(Shape((16,)), 2)])
    sane(answers)
    assert answers[1].step_time_s is not None
    assert answers[1].step_time_s.low > 8 * points[0].step_time_s.value


def test_devices_that_seem_to_help_each_other_are_noise() -> None:
    answers = fit(one_node({1: 0.100, 2: 0.095, 4: 0.090})).predict(asked(8, 16))
    sane(answers)


def test_known_errors_do_not_narrow_an_interval_below_a_repeats_noise() -> None:
    sane(fit(one_node({1: 0.100, 2: 0.108, 4: 0.118}, log_error=0.001)).predict(asked(1, 2, 4)))


def test_many_exact_points_neither() -> None:
    points = [
        measured_step(Shape((w,) * m), batch, 0.05 + 0.001 * batch)
        for m in (1, 2, 4)
        for w in (1, 2, 4)
        for batch in (8, 64)
    ]
    sane(fit(points).predict([Question(Shape((4, 4)), 8)]))


def test_one_device_is_the_compute() -> None:
    found = fit(NODES_OF_4)
    answer = found.predict([Question(Shape((1,)), 32)])[0]
    assert answer.step_time_s is not None
    assert answer.efficiency is not None
    assert found.compute_s(32).value == pytest.approx(answer.step_time_s.value)
    assert found.compute_s(32).value == pytest.approx(0.082, rel=0.05)
    assert found.compute_s(32).value < found.compute_s(64).value < found.compute_s(128).value
    assert answer.efficiency.value == pytest.approx(1.0)


def test_fewer_than_three_sizes_are_refused() -> None:
    answer = fit(one_node({1: 0.1, 2: 0.11})).predict(asked(8))[0]
    assert answer.step_time_s is None
    assert answer.efficiency is None
    assert answer.refused == "too few world sizes"
    assert answer.naive_step_time_s == pytest.approx(0.11)


def test_more_than_eight_times_the_largest_is_refused() -> None:
    near, far = fit(SMALL).predict(asked(32, 33))
    assert not near.refused
    assert far.refused == "too many devices"


def test_a_network_that_was_never_crossed_is_refused() -> None:
    one, two = fit(SMALL).predict([Question(Shape((8,)), 32), Question(Shape((4, 4)), 32)])
    assert not one.refused
    assert two.refused == "network not crossed"


def test_no_questions_no_answers() -> None:
    assert fit(SMALL).predict([]) == []


def test_a_batch_that_was_not_measured_has_a_wider_interval() -> None:
    known, new = fit(NODES_OF_4).predict([Question(Shape((4,) * 8), batch) for batch in (128, 512)])
    assert known.step_time_s is not None
    assert new.step_time_s is not None
    assert new.step_time_s.relative_half_width > known.step_time_s.relative_half_width
