"""Does that of Ray live without which nothing goes on?

Of a local cluster the raylet and the GCS, which are children of this process; of a cluster that was joined
the GCS of its head, by its port. Ray's core ends the driver where they are gone, in silence, from C++
(``_Exit``): once it next needs a process that died, or a minute after it has lost the head. Until then what
was measured can be kept, the report written, and told what happened.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import psutil

from raybench.launch import signals

NEEDED = ("raylet", "gcs_server")  # children of the process that starts a local cluster
LOOK_S = 0.25
LOOK_AT_HEAD_S = 2.0
SILENT_S = 20.0  # a shorter break of the link to the head ends nothing; after 60 s Ray ends the driver


class RayAlive:
    """A thread that looks, from its start to ``stop``; a death ends the run as a signal does."""

    def __init__(self) -> None:
        self._enough = threading.Event()
        self._thread: threading.Thread | None = None

    def watch_children(self) -> None:
        """Of the cluster that this process has just started."""
        needed = [(name, child) for child in psutil.Process().children() if (name := _name(child)) in NEEDED]

        def died() -> str:
            gone = [name for name, process in needed if not _runs(process)]
            return f"Ray's {' and '.join(gone)} died" if gone else ""

        self._start(died, LOOK_S)

    def watch_head(self, address: str) -> None:
        """``address``: HOST:PORT of the GCS of the cluster that was joined."""
        host, _, port = address.rpartition(":")
        answered = time.monotonic()

        def silent() -> str:
            nonlocal answered
            if _answers(host.strip("[]"), int(port)):
                answered = time.monotonic()
            since_s = time.monotonic() - answered
            if since_s < SILENT_S:
                return ""
            return f"the head of the cluster, {address}, has not answered for {since_s:.0f} s"

        self._start(silent, LOOK_AT_HEAD_S)

    def stop(self) -> None:
        """Before the cluster is ended. May be called twice."""
        self._enough.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _start(self, gone: Callable[[], str], every_s: float) -> None:
        def look() -> None:
            while not self._enough.wait(every_s):
                reason = gone()
                if reason:
                    signals.end(reason)
                    return

        self._enough.clear()
        self._thread = threading.Thread(target=look, daemon=True, name="raybench-ray-alive")
        self._thread.start()


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=LOOK_AT_HEAD_S):
            return True
    except OSError:
        return False


def _runs(process: psutil.Process) -> bool:
    """A process that has died stays a zombie until Ray asks how it ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
