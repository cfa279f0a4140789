"""A worker that has died is gone before anybody asks how it ended."""

from __future__ import annotations

import os

from raybench.launch.liveness import Deaths
from tests.processes.starting import LIMIT_S, program
from tests.support.planted.faults import until


def test_a_zombie_is_gone_and_what_never_was_is_not_watched() -> None:
    with program("import sys; sys.stdin.read()", stdin=-1) as worker:
        found = Deaths({0: os.getpid(), 1: worker.pid, 2: 2**22 + 1})  # no process has such a number
        assert found.alive() == [0, 1]
        worker.kill()
        assert until(lambda: found.alive() == [0], LIMIT_S)
        worker.communicate()
    assert found.alive() == [0]
