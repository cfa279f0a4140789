"""Signals where Ray itself could spoil it: while it starts, after its own handlers, under its calls."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raybench.commands.process import INTERRUPTED
from tests.support import budget
from tests.support.commands import Command
from tests.support.faulty_study import GOES_ON, assert_report, write_study
from tests.support.planted.faults import until

pytestmark = pytest.mark.timeout(600)
ENDS_S = 60.0


class SlowReport(Command):
    program = ("-m", "tests.ray.slow_report")


def ends_with_the_report(command: Command, folder: Path) -> None:
    assert command.wait(ENDS_S) == INTERRUPTED, command.output
    assert command.output.count(GOES_ON) == 1
    assert "Traceback" not in command.output
    assert_report(folder)
    assert command.survivors(ENDS_S) == []


@pytest.mark.promise("sigterm")
def test_sigterm_while_the_report_is_drawn(tmp_path: Path) -> None:
    """Ray's core answers it with an alarm that aborts the process, unless it is kept from that."""
    write_study(tmp_path, [8], "[1]")
    command = SlowReport("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    log = tmp_path / "out" / "ray.log"
    assert until(lambda: log.exists() and "drawing" in log.read_text(errors="replace"), 240), command.output
    command.send(signal.SIGTERM)
    ends_with_the_report(command, tmp_path)


def test_sigint_while_ray_starts(tmp_path: Path) -> None:
    write_study(tmp_path, [8], "[1]")
    command = Command("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    command.wait_for("starting Ray")
    command.send(signal.SIGINT)
    ends_with_the_report(command, tmp_path)
    assert "samples/s" not in command.output


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


def test_ten_signals_under_calls_of_ray_are_ten_interrupts_and_no_alarm() -> None:
    budget.took(budget.CLUSTERS)
    budget.took(budget.PROCESSES)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-10:] == ["SIGTERM", "SIGINT"] * 5
