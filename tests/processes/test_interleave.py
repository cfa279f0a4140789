"""The starts of ``compare --interleave`` as processes, a script in the place of Python."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.support.commands import Command

WAITS = """#!/bin/sh
trap 'echo kept; exit 130' INT
echo started
while :; do sleep 0.1; done
"""
FAILS = """#!/bin/sh
echo "no module named raybench"
exit 3
"""


def interleaved(folder: Path, script: str) -> Command:
    python = folder / "python"
    python.write_text(script)
    python.chmod(0o755)
    return Command("compare", "--interleave", str(python), str(python), "--output", "out", folder=folder)


def test_an_interrupt_reaches_the_start_once_and_waits_for_it(tmp_path: Path) -> None:
    command, log = interleaved(tmp_path, WAITS), tmp_path / "out" / "a-1.log"
    deadline = time.monotonic() + 30
    while not (log.is_file() and log.read_text()):
        assert time.monotonic() < deadline, command.output
        time.sleep(0.1)
    command.send(signal.SIGINT)
    assert command.wait(30) == 130, command.output
    assert log.read_text().split() == ["started", "kept"]
    assert "ended after 0 of 5 pairs of starts" in command.output
    assert command.survivors(5) == []


def test_a_start_that_fails_says_so(tmp_path: Path) -> None:
    command = interleaved(tmp_path, FAILS)
    assert command.wait(30) == 1, command.output
    where = "start 1 of A: exit code 3, its last lines (out/a-1.log):"
    assert f"{where}\nno module named raybench\n" in command.output
