"""The diagnosis as a text."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path

from rich.console import Console

from raybench.analysis.findings.case import Around
from raybench.report.document import diagnosis_markdown, write_report
from raybench.report.terminal import print_summary
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.unit.studies import SIXTEEN_TENTHS, asked, exactly, failed, measured, planted, study

FOUR = {
    (8, "fp32"): exactly(0.3),
    (128, "fp32"): exactly(0.81, 0.04),
    (8, "bf16"): exactly(0.25, 0.005),
    (128, "bf16"): exactly(0.7, 0.02),
}


def test_findings_have_cost_evidence_and_next_step() -> None:
    text = diagnosis_markdown(planted(FOUR, "batch_size", "precision"))
    first = next(line for line in text.splitlines() if line.startswith("1. "))
    assert re.fullmatch(
        r"1\. \*\*Communication-bound\*\* \([\d.]+ ms, \d+% of a step\): .+\. Next step: .+\.", first
    )


def test_a_study_that_tells_nothing_still_has_a_diagnosis() -> None:
    one = measured(SIXTEEN_TENTHS, world_size=1, setting=Setting(strategy="single"))
    for records in ([], [one]):
        results = analyse(study(knobs={"batch_size": [32]}), records)
        assert diagnosis_markdown(results).startswith("# Diagnosis: fake")


def test_a_study_whose_trials_all_crashed_names_error_place_and_command(tmp_path: Path) -> None:
    spec = study(knobs={"batch_size": [32, 64]}, search={"method": "grid"})
    asked_of = [asked(spec, "scaling", Setting(batch_size=batch), 2) for batch in (32, 64)]
    where = "own.py:7, in loss: return self.head(x)"
    told = {"reason": "rank 0: AttributeError: no 'head'", "frame": where}
    records = [failed(each, "crashed").model_copy(update=told) for each in asked_of]
    command = "python -m raybench.study scaling --resume --output mine"
    around = Around(goes_on=command, left_out=("17 of 18 trials of the curves",))
    results = analyse(spec, records, around=around)
    write_report(tmp_path, results)
    diagnosis = (tmp_path / "report" / "diagnosis.md").read_text()
    assert (
        "In every row: devices = 2; role = scaling; state = crashed." in diagnosis
    )  # as in the other documents
    for name in ("report.html", "report.md", "diagnosis.md"):
        text = html.unescape((tmp_path / "report" / name).read_text()).replace("\\", "")
        assert "steady" not in text
        assert "1 more trial crashed: rank 0: AttributeError: no 'head'" in text, name
        assert where in text
        assert f"{command} --retry crashed<" in text or f"`{command} --retry crashed`" in text
        assert "17 of 18 trials of the curves" in text
    shown = io.StringIO()
    print_summary(results, Console(file=shown, width=80))
    lines = shown.getvalue().splitlines()
    assert f"    {command} --retry crashed" in lines  # whole: it is copied
    assert f"    {where}" in lines
    assert any(line.startswith("not reached: 17 of 18 trials") for line in lines)
