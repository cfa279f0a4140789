"""``diagnosis.md``: findings with what to do about them."""

from __future__ import annotations

from raybench.analysis import analyse
from raybench.report.contents import make_tables
from raybench.report.diagnosis import diagnosis_markdown
from raybench.testing.fake import FakeRunner, Noise
from tests.unit.studies import grid, study


def test_findings_have_evidence_and_next_step() -> None:
    noisy = study(knobs={"batch_size": [64]}, measure={"half_width": 0.005, "max_seconds": 3})
    runner = FakeRunner(noise=Noise(block=0.1))
    results = analyse(noisy, grid(noisy, [1, 2], runner)[0])
    text = diagnosis_markdown(results, make_tables(results))
    assert "## Noisy measurement (warning)" in text
    assert "Next step: it shrinks with the square root of time" in text
