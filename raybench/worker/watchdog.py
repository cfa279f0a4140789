"""Ends a worker whose trial takes too long, whatever the trial is doing.

Two layers here, the third is the driver's own deadline: a thread that ends the process with a reason, and
``faulthandler``, which fires from C even while a call holds the GIL.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from types import TracebackType

EXIT_CODE = 70
STDERR = 2  # the descriptor: Python's own stream may be replaced or closed
GIL_HELD_AFTER_S = 2.0  # faulthandler follows where the thread could not run


class Watchdog:
    """A context: leaving it in time stops the watch."""

    def __init__(self, timeout_s: float, what: str) -> None:
        self._timeout_s, self._what = timeout_s, what
        self._timer = threading.Timer(timeout_s, self._end_process)
        self._timer.daemon = True

    def __enter__(self) -> Watchdog:
        self._timer.start()
        faulthandler.dump_traceback_later(self._timeout_s + GIL_HELD_AFTER_S, exit=True, file=STDERR)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        faulthandler.cancel_dump_traceback_later()

    def _end_process(self) -> None:
        print(f"raybench: {self._what} took over {self._timeout_s:g} s, ending this worker", file=sys.stderr)
        faulthandler.dump_traceback(file=STDERR)
        sys.stderr.flush()
        os._exit(EXIT_CODE)
