"""Signals where Ray itself could spoil it: while it starts, after its own handlers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from raybench.commands.process import INTERRUPTED
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


@pytest.mark.long
def test_sigint_while_ray_starts(tmp_path: Path) -> None:
    write_study(tmp_path, [8], "[1]")
    command = Command("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    command.wait_for("starting Ray")
    command.send(signal.SIGINT)
    ends_with_the_report(command, tmp_path)
    assert "samples/s" not in command.output
