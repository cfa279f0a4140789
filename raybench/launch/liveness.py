"""Whether the processes that a study needs still live: workers, Ray's own, and the head that was joined."""

from __future__ import annotations

import ctypes
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import psutil

from raybench.errors import RayDiedError
from raybench.launch import signals

DEATH_NOTICE_S = 15.0  # Ray needs 1 to 3 s to see a death
LOOK_S = 0.25  # whether something has ended, and whether a signal waits

Answer = TypeVar("Answer")


def in_thread(name: str, call: Callable[[], Answer], *, lives_on: bool = False) -> Future[Answer]:
    """Call outside the main thread, where Ray would put a handler of SIGTERM that exits half-way.

    ``lives_on``: the kernel ends Ray's processes with the thread that started them.
    """
    result: Future[Answer] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)
        if lives_on:
            threading.Event().wait()

    threading.Thread(target=run, daemon=True, name=name).start()
    return result


def await_end(call: Future[Any], limit_s: float = math.inf) -> None:
    """Wait until a call has ended, no longer than ``limit_s``.

    Raises ``Interrupted``: Ray's core leaves 12 s after its raylet.
    """
    until = time.monotonic() + limit_s
    while not call.done() and (left_s := until - time.monotonic()) > 0:
        signals.check()
        wait([call], timeout=min(left_s, LOOK_S))


def is_there(pid: int) -> bool:
    """Whether a process lives, and can be seen from this one's container."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


CALLS_RAY = ("raybench-fit", "raybench-tune")  # threads in which Ray Train and Ray Tune run
NEEDED = ("raylet", "gcs_server")  # children of the process that starts a local cluster
LOOK_AT_HEAD_S = 2.0
SILENT_S = 20.0  # a shorter break of the link to the head ends nothing; after 60 s Ray ends the driver


class RayAlive:
    """Threads that wait, of one cluster, until ``stop``; a death ends the run as a signal does, once."""

    def __init__(self) -> None:
        self._over = threading.Event()  # a death was told, or what comes now is no death
        self._telling = threading.Lock()

    def watch_children(self) -> None:
        """Of the cluster that this process has just started."""
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                if (name := child.name()) in NEEDED:
                    in_thread("raybench-ray-alive", partial(self._await_death, name, child.pid))

    def watch_head(self, address: str) -> None:
        """``address``: HOST:PORT of the GCS of the cluster that was joined."""
        in_thread("raybench-ray-alive", partial(self._await_silence, address))

    def stop(self) -> None:
        """Before the cluster is ended. May be called twice."""
        with self._telling:
            self._over.set()

    def _await_death(self, name: str, pid: int) -> None:
        with suppress(ChildProcessError):  # Ray has asked already
            # it stays a zombie, for Ray to ask how it ended
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self._tell(f"Ray's {name} died")

    def _await_silence(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        answered = time.monotonic()
        while not self._over.wait(LOOK_AT_HEAD_S):
            if _answers(host.strip("[]"), int(port)):
                answered = time.monotonic()
            since_s = time.monotonic() - answered
            if since_s >= SILENT_S:
                self._tell(f"the head of the cluster, {address}, has not answered for {since_s:.0f} s")

    def _tell(self, reason: str) -> None:
        with self._telling:
            if not self._over.is_set():
                self._over.set()
                signals.ask(RayDiedError(reason))
                end_callers()


def end_callers() -> None:
    """End the threads that call Ray on their own, before their next call: without its raylet it is the last.

    A group that starts puts its function into the object store. A thread that is in a call ends after it.
    """
    for thread in threading.enumerate():
        if thread.name in CALLS_RAY and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
            )


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=LOOK_AT_HEAD_S):
            return True
    except OSError:
        return False
