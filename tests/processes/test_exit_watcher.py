"""A command that is ended from outside has its last words, and no other one has."""

from __future__ import annotations

import os
import signal

import pytest

from tests.processes.starting import Ready, program

BEGIN = """
import os, signal, sys
from raybench.commands.process import exit_watcher
with exit_watcher("To go on: this", "the report: \\u00e9"):
    print("begins", flush=True)
"""
ENDS = {
    "killed": ("    os.kill(os.getpid(), signal.SIGKILL)", True),
    "left from C": ("    os._exit(1)", True),
    "done": ("    pass", False),
    "refused": ("    sys.exit(2)", False),
    "traceback": ("    raise ValueError('of its own')", False),
    "interrupted": ("    os.kill(os.getpid(), signal.SIGINT)", False),
    "after the block": ("    pass\nos._exit(130)", False),
}


@pytest.mark.parametrize("name", ENDS)
def test_exit_watcher_lines_are_those_of_the_killed(name: str, bare: Ready) -> None:
    end, told = ENDS[name]
    lines = bare.run(f"{BEGIN}{end}\n").stdout.splitlines()
    assert lines == ["begins", *(["To go on: this", "the report: é"] if told else [])]


def test_ctrl_c_of_a_terminal_does_not_reach_the_watcher() -> None:
    # all that it starts is in its session: Ctrl-C of a terminal goes to the whole group
    with program(f"{BEGIN}    signal.pause()\n", start_new_session=True) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "begins\n"
        os.killpg(command.pid, signal.SIGTERM)  # which nobody handles here: ended from outside
        assert command.stdout.read().splitlines() == ["To go on: this", "the report: é"]
