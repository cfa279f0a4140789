"""An output that cannot show every character, or that nobody reads to its end: no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.unit.commands.test_compare import planted


def test_a_report_is_written_whatever_the_output_can_encode(tmp_path: Path) -> None:
    path = planted(tmp_path, "results", 0.01)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "raybench.study", "report", str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert (path / "report" / "report.html").exists()
    assert "Report: " in done.stdout


def test_a_report_is_written_whoever_has_left_the_pipe(tmp_path: Path) -> None:
    path = planted(tmp_path, "results", 0.01)
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "raybench.study", "report", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=120
    )
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")
    assert (path / "report" / "report.html").exists()
