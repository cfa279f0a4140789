from __future__ import annotations

import psutil

from tests.processes.starting import LIMIT_S
from tests.support.planted.faults import until
from tests.support.usage import SETTLED, Usage


def test_a_process_that_is_gone_is_no_sample() -> None:
    usage = Usage()
    process = psutil.Popen(["true"])
    assert until(lambda: process.status() == psutil.STATUS_ZOMBIE, LIMIT_S)
    usage.look(process, 0)
    usage.look(process, SETTLED)
    process.wait()
    usage.look(process, 2 * SETTLED)
    assert usage.words() == "none lived long enough"
