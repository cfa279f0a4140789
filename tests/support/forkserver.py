"""The one process that ranks and commands are forked from: it has imported what they need, and begun nothing.

Each would take seconds of a core to import it itself.
"""

from __future__ import annotations

import io
import multiprocessing
import os
from multiprocessing import forkserver
from typing import Any

IMPORTED = (
    "torch._dynamo",
    "ray.train",
    "raybench.study",
    "raybench.commands.runs",
    "raybench.report.document",
    "raybench.driver.stages",
    "raybench.worker.serve",
    "raybench.worker.trial",
    "tests.support.ranks_runner",
)
# else each rank that compiles starts processes for it, which import torch too
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(list(IMPORTED))


# In a process that was forked from it: else it would start a server of its own, with all the imports. Python
# does so in spite of its docstring.
SERVER_OF_ALL = (forkserver._forkserver, "ensure_running", lambda: None)  # type: ignore[attr-defined]


class ForkedPopen:
    """A process of it, started here, with the names of ``subprocess.Popen``."""

    def __init__(self, process: Any) -> None:
        process.start()
        self._process, self.pid = process, process.pid
        self.stdin = io.BytesIO()

    @property
    def returncode(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self.returncode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)
