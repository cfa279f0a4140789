"""The diagnosis as a text."""

from __future__ import annotations

from raybench.analysis import StudyResults, analyse
from raybench.report.answer import answer_of
from raybench.report.contents import make_tables
from raybench.report.diagnosis import diagnosis_markdown, grouped
from raybench.spec import Setting
from raybench.testing import FakeRunner, Noise
from tests.unit.studies import SIXTEEN_TENTHS, exactly, grid, measured, planted, study


def diagnosis_of(results: StudyResults) -> str:
    return diagnosis_markdown(results, make_tables(results), answer_of(results), grouped(results.findings))


def test_findings_have_evidence_and_next_step() -> None:
    noisy = study(knobs={"batch_size": [64]}, measure={"half_width": 0.005, "max_seconds": 3})
    runner = FakeRunner(noise=Noise(block=0.1))
    results = analyse(noisy, grid(noisy, [1, 2], runner)[0])
    text = diagnosis_of(results)
    assert "## Noisy measurement (warning)" in text
    assert "Next step: it shrinks with the square root of time" in text


def test_every_configuration_has_a_status_and_the_measured_change_that_helps() -> None:
    costs = {
        (8, "fp32"): exactly(0.3),
        (128, "fp32"): exactly(0.81, 0.04),
        (8, "bf16"): exactly(0.25, 0.005),
        (128, "bf16"): exactly(0.7, 0.02),
    }
    results = planted(costs, "batch_size", "precision")
    text = diagnosis_of(results)
    assert "### batch 8, fp32: negative" in text
    assert "batch 128 reaches 81% [81, 81], 1.62x [1.62, 1.62], where this has 30% [30, 30]" in text
    assert "70% [70, 70] communication" in text
    ranking = text[text.index("## What changes the efficiency most") :]
    assert "Against the default at 30% on 2 devices" in ranking  # its interval would not be for all at once
    assert "2.70x [2.70, 2.70] the efficiency, 81%; " in ranking
    assert ranking.index("- batch 128: 2.70x") < ranking.index("- bf16: 0.83x")


def test_a_study_that_tells_nothing_still_has_a_diagnosis() -> None:
    one = measured(SIXTEEN_TENTHS, world_size=1, setting=Setting(strategy="single"))
    for records in ([], [one]):
        results = analyse(study(knobs={"batch_size": [32]}), records)
        assert diagnosis_of(results).startswith("# Diagnosis: fake")
