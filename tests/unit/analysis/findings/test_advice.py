"""Which measured settings are better than the headline, and in which order."""

from __future__ import annotations

import pytest

from raybench.analysis.findings.diagnose import better_settings
from tests.unit.studies import exactly, planted

FOUR = {
    (8, "fp32"): exactly(0.3),
    (128, "fp32"): exactly(0.81, 0.04),
    (8, "bf16"): exactly(0.25, 0.005),
    (128, "bf16"): exactly(0.7, 0.02),
}


def test_what_is_faster_and_scales_better_is_a_change_the_fewest_knobs_first() -> None:
    """bf16 alone computes faster and scales worse."""
    near, far = better_settings(planted(FOUR, "batch_size", "precision"))
    assert near.changes == {"batch_size": 128}
    assert far.changes == {"batch_size": 128, "precision": "bf16"}
    assert near.throughput_ratio.value == pytest.approx(16 * (0.01 / 0.3) / (0.04 / 0.81))


def test_what_differs_in_several_knobs_counts_where_nothing_nearer_is_better() -> None:
    costs = {(8, "default"): exactly(0.3), (8, 1): exactly(0.299), (128, 1): exactly(0.9, 0.04)}
    (far,) = better_settings(planted(costs, "batch_size", "bucket_cap_mb"))
    assert far.changes == {"batch_size": 128, "bucket_cap_mb": 1}


def test_of_the_nearest_settings_the_one_that_gains_most_comes_first() -> None:
    costs = {(8, "fp32"): exactly(0.3), (32, "fp32"): exactly(0.6, 0.02), (128, "fp32"): exactly(0.9, 0.06)}
    found = better_settings(planted(costs, "batch_size", "precision"))
    assert [each.changes for each in found] == [{"batch_size": 128}, {"batch_size": 32}]
