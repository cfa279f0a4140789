"""The model of a step: its limits, and that it grows where physics says so."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from raybench.analysis.simulate.model import (
    INDEX,
    MEANS,
    VARIANTS,
    Places,
    Units,
    Variant,
    all_reduce_line,
    expected_maximum,
    parts,
)
from raybench.analysis.simulate.steps import Question, Shape

UNITS = Units(0.1, 32)
SIZES = (1, 2, 4, 8, 16, 32, 64)


def packed(n: int) -> Shape:
    return Shape.even(n, -(-n // 4))


def with_values(**changed: float) -> np.ndarray:
    values = MEANS.copy()
    for name, value in changed.items():
        values[INDEX[name]] = value
    return values


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_device_computes_and_more_take_longer(variant: Variant) -> None:
    places = Places.of([Question(packed(n), 32) for n in SIZES])
    found = parts(MEANS, places, UNITS, variant)
    assert found.log_step[0] == pytest.approx(found.log_one_device[0], abs=1e-8)
    assert (np.diff(found.log_step[2:]) > 0).all()  # from one full node on
    assert (found.log_step >= found.log_one_device - 1e-9).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_larger_batch_takes_longer_and_hides_more(variant: Variant) -> None:
    places = Places.of([Question(packed(16), batch) for batch in (8, 32, 128, 512)])
    found = parts(MEANS, places, UNITS, variant)
    assert (np.diff(found.log_step) > 0).all()
    exposed_s = np.exp(found.log_step) - np.exp(found.log_one_device)
    slower_s = np.exp(found.log_bare_compute) - np.exp(found.log_one_device)
    assert (np.diff(exposed_s - 2 * slower_s) < 1e-9).all()


def test_overlap_lies_between_none_and_all() -> None:
    places = Places.of([Question(packed(16), 32)])
    none = parts(with_values(sharpness=-12.0), places, UNITS, "ring")
    full = parts(with_values(sharpness=6.0, hidden_share=12.0), places, UNITS, "ring")
    usual = parts(MEANS, places, UNITS, "ring")
    assert full.log_step[0] < usual.log_step[0] < none.log_step[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_derivative_by_compute_is_one(variant: Variant) -> None:
    places = Places.of([Question(packed(n), 32) for n in SIZES])
    low, high = (parts(MEANS, places, UNITS, variant, compute_effect=step) for step in (-1e-5, 1e-5))
    at = parts(MEANS, places, UNITS, variant)
    assert (high.log_step - low.log_step) / 2e-5 == pytest.approx(at.by_compute, abs=1e-6)


def test_a_ring_is_the_textbooks() -> None:
    values = with_values(sharing=-40.0, two_nodes=0.0)
    local_s, local_byte_s, far_s, far_byte_s = np.exp(
        values[
            [
                INDEX[name]
                for name in ("local_latency_s", "local_s_per_byte", "far_latency_s", "far_s_per_byte")
            ]
        ]
    )
    places = Places.of([Question(Shape((4,)), 1), Question(Shape((1,) * 8), 1)])
    latency_s, s_per_byte = all_reduce_line(values, places, "ring")
    assert latency_s == pytest.approx([2 * 3 * local_s, 2 * 7 * far_s])
    assert s_per_byte == pytest.approx([2 * 3 / 4 * local_byte_s, 2 * 7 / 8 * far_byte_s])


def test_a_tree_adds_latency_by_doublings() -> None:
    places = Places.of([Question(Shape((1,) * n), 1) for n in (4, 8, 16)])
    latency_s, _ = all_reduce_line(MEANS, places, "tree")
    assert np.diff(latency_s) == pytest.approx([latency_s[0] / 2] * 2)


@pytest.mark.parametrize("count", [2, 4, 16, 64])
def test_the_largest_of_normal_values(count: int) -> None:
    grid = np.linspace(-9, 9, 20_001)
    density = count * norm.pdf(grid) * norm.cdf(grid) ** (count - 1)
    exact = float((grid * density).sum() * (grid[1] - grid[0]))
    assert expected_maximum(np.array([count]))[0] == pytest.approx(exact, rel=0.05)


def test_the_largest_of_one_is_the_mean() -> None:
    assert expected_maximum(np.array([1.0]))[0] == 0
