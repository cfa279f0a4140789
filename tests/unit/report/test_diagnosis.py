"""The diagnosis as a text."""

from __future__ import annotations

from raybench.report.diagnosis import diagnosis_markdown
from tests.unit.studies import exactly, planted


def test_every_configuration_has_a_status_and_the_measured_change_that_helps() -> None:
    costs = {
        (8, "fp32"): exactly(0.3),
        (128, "fp32"): exactly(0.81, 0.04),
        (8, "bf16"): exactly(0.25, 0.005),
        (128, "bf16"): exactly(0.7, 0.02),
    }
    text = diagnosis_markdown(planted(costs, "batch_size", "precision"))
    assert "### batch 8, fp32: negative" in text
    assert "batch 128 reaches 81% [81, 81], 1.62x [1.62, 1.62], where this has 30% [30, 30]" in text
    assert "70% [70, 70] exposed communication" in text
    ranking = text[text.index("## What changes the efficiency most") :]
    assert ranking.index("- batch 128: 2.70x") < ranking.index("- bf16: 0.83x")
