"""Signals at any moment: the report is whole, the line to resume is printed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.commands import Command
from tests.support.faulty_study import assert_report, write_study


class SlowReport(Command):
    program = ("-m", "tests.ray.slow_report")


def wait_until(folder: Path, moment: str, command: Command) -> None:
    """``moment``: what was printed, or "drawing"."""
    if moment != "drawing":
        command.wait_for(moment)
        return
    log, deadline = folder / "out" / "ray.log", time.monotonic() + 120
    while not (log.exists() and "drawing" in log.read_text()):
        assert command.process.poll() is None, command.output
        assert time.monotonic() < deadline, command.output
        time.sleep(0.1)


MOMENTS = ("starting Ray", "Ray dashboard", "samples/s", "drawing")
CASES = [(number, moment) for moment in MOMENTS for number in (signal.SIGTERM, signal.SIGINT)]
CASES.remove((signal.SIGINT, "samples/s"))  # Ctrl-C while trials are measured: test_faults goes on after it


@pytest.mark.parametrize(("number", "moment"), CASES, ids=lambda value: getattr(value, "name", value))
def test_leaves_with_the_report_and_the_line_to_resume(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    write_study(tmp_path, [8, 9], workload="seconds = 0.005")
    command = SlowReport("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    wait_until(tmp_path, moment, command)
    command.send(number)
    assert command.wait(60) == 130, command.output
    assert "To go on: python -m raybench.study scaling --resume --output out" in command.output
    assert command.output.count("To go on: ") == 1
    assert "Traceback" not in command.output
    assert "Report:  out/report/report.html" in command.output
    assert_report(tmp_path)
    assert command.survivors(10) == []


PROGRAM = """
import os, signal, sys, time
import ray
from raybench.errors import Interrupted
from raybench.launch import signals
from raybench.launch.cluster import Cluster

caught = []
with signals.raising():
    cluster = Cluster()
    cluster.connect()
    for moment in range(10):
        number = signal.SIGTERM if moment % 2 == 0 else signal.SIGINT
        try:
            with signals.held():
                os.kill(os.getpid(), number)
                ray.get(ray.put(moment))  # a call of Ray's under way
                time.sleep(0.1 * moment)
        except Interrupted as interrupted:
            caught.append(str(interrupted))
    time.sleep(4)  # longer than the alarm of the last SIGTERM
    cluster.close()
print(" ".join(caught), flush=True)
"""


def test_ten_signals_are_ten_interrupts_and_no_alarm() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-10:] == ["SIGTERM", "SIGINT"] * 5
