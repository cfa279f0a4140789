"""An output that cannot show every character: no traceback, and the report is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.unit.commands.test_compare import planted


def test_a_report_is_written_whatever_the_output_takes(tmp_path: Path) -> None:
    path = planted(tmp_path, "results", 0.01)
    done = subprocess.run(
        [sys.executable, "-m", "raybench.study", "report", str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (path / "report" / "report.html").exists()
    assert "Report: " in done.stdout
