"""Do the processes of a local cluster live without which nothing goes on?

Ray's core ends the driver where they are gone, in silence, from C++ (``_Exit``), once it next needs them:
that may take seconds. Until then what was measured can be kept, the report written, and told what happened.
"""

from __future__ import annotations

import threading

import psutil

from raybench.launch import signals

NEEDED = ("raylet", "gcs_server")  # children of the process that starts a local cluster
LOOK_S = 0.25


class RayAlive:
    """A thread that looks, from ``start`` to ``stop``; a death ends the run as a signal does."""

    def __init__(self) -> None:
        self._enough = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Of the cluster that this process has just started."""
        needed = [(name, child) for child in psutil.Process().children() if (name := _name(child)) in NEEDED]
        self._enough.clear()
        self._thread = threading.Thread(
            target=self._look, args=(needed,), daemon=True, name="raybench-ray-alive"
        )
        self._thread.start()

    def stop(self) -> None:
        """Before the cluster is ended. May be called twice."""
        self._enough.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _look(self, needed: list[tuple[str, psutil.Process]]) -> None:
        while not self._enough.wait(LOOK_S):
            gone = [name for name, process in needed if not _runs(process)]
            if gone:
                signals.end(f"Ray's {' and '.join(gone)} died")
                return


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
