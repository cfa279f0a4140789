from __future__ import annotations

import psutil

from raybench.testing.faults import until
from raybench.testing.usage import SETTLED, Usage
from tests.processes.starting import LIMIT_S


def test_a_process_that_is_gone_is_no_sample() -> None:
    usage = Usage()
    process = psutil.Popen(["true"])
    assert until(lambda: process.status() == psutil.STATUS_ZOMBIE, LIMIT_S)
    usage.look(process, 0)
    usage.look(process, SETTLED)
    process.wait()
    usage.look(process, 2 * SETTLED)
    assert usage.words() == "none lived long enough"
