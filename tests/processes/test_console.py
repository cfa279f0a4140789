"""Outputs that are closed, or cannot show every character: no traceback, and no file in their place."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.unit.commands.test_compare import planted

OPENS = """
import os, sys
from raybench.commands.console import usable_streams
usable_streams()
first = os.open(os.devnull, os.O_RDONLY)
print("words")
print("more words", file=sys.stderr)
assert sys.stdin.read() == ""
sys.exit(first)
"""


def run(words: list[str], closed: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    shell = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, *words]
    return subprocess.run(shell, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_no_file_takes_the_place_of_a_stream_that_is_closed(closed: str) -> None:
    done = run(["-c", OPENS], closed if "<" in closed else f"</dev/null {closed}")
    assert done.returncode == 3, done.stderr
    assert done.stdout == ("" if ">&-" in closed.split("2")[0] else "words\n")
    assert done.stderr == ("" if "2>" in closed else "more words\n")


@pytest.mark.parametrize(
    ("closed", "variables"), [(">&-", {}), ("", {"PYTHONIOENCODING": "ascii"})], ids=["closed", "ascii"]
)
def test_a_report_is_written_whatever_the_output_takes(
    closed: str, variables: dict[str, str], tmp_path
) -> None:
    path = planted(tmp_path, "results", 0.01)
    done = run(["-m", "raybench.study", "report", str(path)], closed, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert (path / "report" / "report.html").exists()
    assert ("Report: " in done.stdout) is not bool(closed)
