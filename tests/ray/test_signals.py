"""A signal while Ray itself starts; others are under a head that runs already: test_address.py."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from raybench.commands.process import INTERRUPTED
from tests.support.commands import Command
from tests.support.faulty_study import GOES_ON, assert_report, write_study

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ENDS_S = 60.0


def test_sigint_while_ray_starts(tmp_path: Path) -> None:
    write_study(tmp_path, [8], "[1]")
    command = Command("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    command.wait_for("starting Ray")
    command.send(signal.SIGINT)
    assert command.wait(ENDS_S) == INTERRUPTED, command.output
    assert command.output.count(GOES_ON) == 1
    assert "Traceback" not in command.output
    assert_report(tmp_path)
    assert command.survivors(ENDS_S) == []
    assert "samples/s" not in command.output
