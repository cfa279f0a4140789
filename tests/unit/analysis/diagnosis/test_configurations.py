"""Every configuration's status, and the measured change that helps it most."""

from __future__ import annotations

import pytest

from raybench.analysis.estimates.efficiency import Status
from tests.unit.studies import exactly, planted


def test_every_configuration_has_a_status_and_the_measured_change_that_helps() -> None:
    costs = {
        (8, "fp32"): exactly(0.3),
        (128, "fp32"): exactly(0.81, 0.04),
        (8, "bf16"): exactly(0.25, 0.005),
        (128, "bf16"): exactly(0.7, 0.02),
    }
    found = planted(costs, "batch_size", "precision")
    by_label = {each.label: each for each in found.configurations}
    assert {label: each.status for label, each in by_label.items()} == {
        "batch 128, fp32": Status.GOOD,
        "batch 128, bf16": Status.POOR,
        "batch 8, fp32": Status.NEGATIVE,
        "batch 8, bf16": Status.NEGATIVE,
    }
    (change,) = by_label["batch 8, fp32"].changes
    assert (change.knob, change.value) == ("batch_size", 128)
    assert change.efficiency_ratio.value == pytest.approx(2.7)
    # fp32 scales better at batch 128 because it computes longer: no advice
    assert by_label["batch 128, bf16"].changes == ()
