"""A command that is ended from outside has its last words, and no other one has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

BEGIN = """
import os, signal, sys
from raybench.commands.last_words import last_words
with last_words("To go on: this", "the report: \\u00e9"):
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
def test_last_words_are_those_of_the_killed(name: str) -> None:
    end, told = ENDS[name]
    # all that it starts is in its session: Ctrl-C of a terminal goes to the whole group
    done = subprocess.run([sys.executable, "-c", f"{BEGIN}{end}\n"], capture_output=True, timeout=60)
    lines = done.stdout.decode().splitlines()
    assert lines == ["begins", *(["To go on: this", "the report: é"] if told else [])]


def test_ctrl_c_of_a_terminal_does_not_reach_the_watcher() -> None:
    program = f"{BEGIN}    signal.pause()\n"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"begins\n"
        os.killpg(command.pid, signal.SIGTERM)  # which nobody handles here: ended from outside
        assert command.stdout.read().decode().splitlines() == ["To go on: this", "the report: é"]
