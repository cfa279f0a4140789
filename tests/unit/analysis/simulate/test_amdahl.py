"""Amdahl's law: published figures recomputed, planted fractions found again, when a device no longer pays."""

from __future__ import annotations

import itertools

import pytest

from raybench.analysis.batch_lines import amdahl_speedup, devices_until
from raybench.analysis.simulate.predict import AmdahlLine, fit, fit_amdahl
from raybench.analysis.simulate.steps import MeasuredPoint, Question, Shape

SIZES = (1, 2, 4, 8, 16)


def planted(fraction: float, noise: tuple[float, ...] = (0.0,) * len(SIZES)) -> AmdahlLine:
    points = [
        MeasuredPoint(Shape((n,)), 32, 0.1 * (1 + fraction * (n - 1)) * (1 + error))
        for n, error in zip(SIZES, noise, strict=True)
    ]
    found = fit_amdahl(points)
    assert found is not None
    assert not found.is_strong
    return found.lines[32]


def test_a_parallel_fraction_of_95_percent_is_not_what_002_says() -> None:
    """Its table has 6.15x and 10.4x at 8 and 16 devices."""
    found = planted(0.05)
    speedups = [round(found.speedup(n), 2) for n in (2, 4, 8, 16)]
    assert speedups == [1.90, 3.48, 5.93, 9.14]


@pytest.mark.parametrize("fraction", [0.001, 0.02, 0.3, 0.9])
def test_a_planted_fraction_comes_back(fraction: float) -> None:
    found = planted(fraction)
    assert found.serial_fraction.value == pytest.approx(fraction, rel=1e-3)
    expected_s = 0.1 * (1 + fraction * 63)
    assert 64 * found.one_device_s / found.speedup(64) == pytest.approx(expected_s, rel=1e-2)


def test_the_interval_holds_it_under_noise() -> None:
    found = planted(0.05, (0.03, -0.02, 0.02, -0.03, 0.03))
    assert not found.serial_fraction.excludes(0.05)
    assert found.serial_fraction.low >= 0


def test_one_outlier_counts_little() -> None:
    found = planted(0.05, (0.0, 0.0, 0.5, 0.0, 0.0))
    assert found.serial_fraction.value == pytest.approx(0.05, rel=1e-2)


def test_a_fixed_global_batch_is_strong_scaling() -> None:
    points = [MeasuredPoint(Shape((n,)), 256 // n, 0.4 * (0.1 + 0.9 / n)) for n in SIZES]
    found = fit_amdahl(points)
    assert found is not None
    assert found.is_strong
    assert found.lines[256].serial_fraction.value == pytest.approx(0.1, rel=1e-2)
    assert found.step_time_s(Question(Shape((32,)), 8)) == pytest.approx(0.4 * (0.1 + 0.9 / 32), rel=1e-2)
    assert found.step_time_s(Question(Shape((32,)), 64)) is None  # another global batch


def test_a_study_of_two_global_batches_has_a_line_for_each() -> None:
    """100 and 200 samples on 1, 2, 3: 100 for a device on one of the first and two of the second."""
    points = [
        MeasuredPoint(Shape((n,)), -(-batch // n), 0.004 * batch * (0.1 + 0.9 / n), global_batch_size=batch)
        for n in (1, 2, 3)
        for batch in (100, 200)
    ]
    found = fit(points, scaling="strong").amdahl
    assert found is not None
    assert found.is_strong
    assert sorted(found.lines) == [100, 200]  # three times 34 are 102
    assert found.lines[100].serial_fraction.value == pytest.approx(0.1, rel=1e-2)
    asked = Question(Shape((8,)), 13, 100)
    assert found.step_time_s(asked) == pytest.approx(0.4 * (0.1 + 0.9 / 8), rel=1e-2)
    only_weak = fit_amdahl(points[:1] + points[3:4], "weak")
    assert only_weak is not None
    assert not only_weak.is_strong


def test_each_batch_has_its_own_line() -> None:
    points = [
        MeasuredPoint(Shape((n,)), batch, 0.001 * batch * (1 + fraction * (n - 1)))
        for n in SIZES
        for batch, fraction in ((32, 0.1), (256, 0.01))
    ]
    found = fit_amdahl(points)
    assert found is not None
    assert found.lines[32].serial_fraction.value == pytest.approx(0.1, rel=1e-2)
    assert found.lines[256].serial_fraction.value == pytest.approx(0.01, rel=1e-2)


def test_where_the_speedup_of_one_more_device_falls_below_a_share() -> None:
    found = planted(0.05)
    devices = found.devices_until(0.5)
    assert devices is not None
    gains = [found.speedup(n) - found.speedup(n - 1) for n in (devices, devices + 1)]
    assert gains[0] >= 0.5 > gains[1]
    fewer = found.devices_until(0.8)
    assert fewer is not None
    assert fewer < devices


@pytest.mark.parametrize("fraction", [0.001, 0.03, 0.09, 0.29, 0.5, 0.9])
@pytest.mark.parametrize("least", [0.2, 0.5, 0.8])
def test_every_device_up_to_there_returns_so_much_and_no_further_one(fraction: float, least: float) -> None:
    devices = devices_until(fraction, least)
    assert devices is not None
    speedups = [amdahl_speedup(fraction, n) if n else 0.0 for n in range(devices + 2)]
    gains = [after - before for before, after in itertools.pairwise(speedups)]
    assert [gain >= least for gain in gains] == [True] * devices + [False]


def test_a_line_through_nothing_else() -> None:
    assert fit_amdahl([MeasuredPoint(Shape((4,)), 32, 0.1)]) is None
    never = planted(0.0)
    assert never.devices_until(0.5) is None  # every device returns a whole one
