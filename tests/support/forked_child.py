"""``Child`` whose process is forked from one that has the imports behind it: a script starts in no time.

That it has a Python of its own is shown on Ray: tests/ray/contract_on_ray.py.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any, BinaryIO, ClassVar

import torch

from raybench.machine.child import Child
from tests.support.forkserver import FORKSERVER, ForkedPopen


class ForkedChild(Child):
    """For a rank that is forked from there itself, and uses the server of all."""

    started: ClassVar[list[Any]] = []  # by this process

    def __init__(
        self,
        function: Callable[[Connection], None],
        *,
        folder: str = "",
        stdout: BinaryIO,
        env: dict[str, str],
        **how: Any,
    ) -> None:
        self._end, other = FORKSERVER.Pipe()
        with other:
            arguments = (function, other, stdout.name, env, str(how["cwd"]), sys.path)
            self._process: Any = ForkedPopen(FORKSERVER.Process(target=_run, args=arguments))
        self.started.append(self._process)


def _run(
    function: Callable[[Connection], None],
    end: Connection,
    output: str,
    environment: dict[str, str],
    folder: str,
    path: list[str],
) -> None:
    os.setsid()
    threading.Thread(target=_end_with_the_rank, daemon=True).start()
    out = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    function(end)


def _end_with_the_rank() -> None:
    rank = parent_process()
    assert rank is not None
    rank.join()
    os._exit(1)
