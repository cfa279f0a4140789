"""A worker that has died is gone before anybody asks how it ended."""

from __future__ import annotations

import os

from raybench.launch.liveness import is_there
from tests.processes.starting import LIMIT_S, program
from tests.support.planted.faults import until


def test_a_zombie_is_gone_and_so_is_what_never_was() -> None:
    with program("import sys; sys.stdin.read()", stdin=-1) as worker:
        assert is_there(os.getpid())
        assert is_there(worker.pid)
        worker.kill()
        assert until(lambda: not is_there(worker.pid), LIMIT_S)
        worker.communicate()
    assert not is_there(worker.pid)
    assert not is_there(2**22 + 1)  # no process has such a number
