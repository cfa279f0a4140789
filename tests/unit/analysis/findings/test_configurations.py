"""Every configuration's status, and the measured change that helps it most."""

from __future__ import annotations

import pytest

from raybench.analysis.scaling import Status
from tests.unit.studies import exactly, planted

FOUR = {
    (8, "fp32"): exactly(0.3),
    (128, "fp32"): exactly(0.81, 0.04),
    (8, "bf16"): exactly(0.25, 0.005),
    (128, "bf16"): exactly(0.7, 0.02),
}


def test_every_configuration_has_a_status_and_the_measured_change_that_helps() -> None:
    found = planted(FOUR, "batch_size", "precision")
    by_label = {found.label(each.record): each for each in found.configurations}
    assert {label: found.scaling(each.record).status for label, each in by_label.items()} == {
        "batch 128, fp32": Status.GOOD,
        "batch 128, bf16": Status.POOR,
        "batch 8, fp32": Status.NEGATIVE,
        "batch 8, bf16": Status.NEGATIVE,
    }
    (change,) = by_label["batch 8, fp32"].nearest
    assert change.changes == {"batch_size": 128}
    assert change.efficiency_ratio.value == pytest.approx(2.7)
    # fp32 scales better at batch 128 because it computes longer: no advice
    assert by_label["batch 128, bf16"].changes == ()


def test_what_differs_in_several_knobs_counts_where_nothing_nearer_is_better() -> None:
    costs = {
        (8, "default"): exactly(0.3),
        (8, 1): exactly(0.299),
        (128, 1): exactly(0.9, 0.04),
    }
    found = planted(costs, "batch_size", "bucket_cap_mb")
    by_label = {found.label(each.record): each for each in found.configurations}
    (far,) = by_label["batch 8, default buckets"].nearest
    assert far.changes == {"batch_size": 128, "bucket_cap_mb": 1}
    assert far.efficiency_ratio.value == pytest.approx(3.0)
    (near,) = by_label["batch 8, 1 MiB buckets"].nearest
    assert near.changes == {"batch_size": 128}
    assert by_label["batch 128, 1 MiB buckets"].changes == ()


def test_of_the_nearest_settings_the_one_that_gains_most_comes_first() -> None:
    costs = {(8, "fp32"): exactly(0.3), (32, "fp32"): exactly(0.6, 0.02), (128, "fp32"): exactly(0.9, 0.06)}
    found = planted(costs, "batch_size", "precision")
    worst = found.configurations[-1]
    assert [each.changes for each in worst.nearest] == [{"batch_size": 128}]


def test_a_setting_has_one_status_wherever_it_stands() -> None:
    """Slower than one device for sure: among the configurations and in its row of the summary."""
    found = planted({(8,): exactly(0.9), (16,): exactly(0.4)}, "batch_size")
    each = found.configurations[-1]
    assert found.scaling(each.record).status is Status.NEGATIVE
    in_summary = {row.trial_id: row.status for row in found.summaries}
    assert in_summary[each.record.trial_id] == "negative"
