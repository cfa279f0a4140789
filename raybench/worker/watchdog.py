"""Ends a worker whose trial takes too long, whatever the trial is doing.

Two layers here, the third is the driver's own deadline: a thread that ends the process with a reason, and
``faulthandler``, which fires from C even while a call holds the GIL.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_CODE = 70
STDERR = 2  # the descriptor: Python's own stream may be replaced or closed
GIL_HELD_AFTER_S = 2.0  # faulthandler follows where the thread could not run


@contextmanager
def watchdog(timeout_s: float, what: str) -> Iterator[None]:
    """End this process where the block takes longer than ``timeout_s``."""

    def end_process() -> None:
        print(f"raybench: {what} took over {timeout_s:g} s, ending this worker", file=sys.stderr)
        faulthandler.dump_traceback(file=STDERR)
        sys.stderr.flush()
        os._exit(EXIT_CODE)

    timer = threading.Timer(timeout_s, end_process)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(timeout_s + GIL_HELD_AFTER_S, exit=True, file=STDERR)
    try:
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()
