"""Which commit raybench is of, as git says."""

from __future__ import annotations

import subprocess

from raybench.machine.environment import capture
from tests.conftest import ROOT
from tests.processes.starting import LIMIT_S


def test_the_commit_of_a_checkout_is_captured() -> None:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    found = capture()
    assert found.commit == done.stdout.strip()
    assert found.dirty in (True, False)
