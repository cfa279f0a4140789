"""A Python process of its own: what code does there, this one does not notice, and it ends with this one.

Code may go to another directory, close the output, take the signals, crash in C, leave a thread that never
ends. Only in a process of its own can all of that be undone, and ended.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from time import monotonic
from typing import Any, TypeVar, cast

from raybench.errors import RequestError

# Not the function itself: its module is found on the import path, which comes first.
CHILD = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from raybench.machine.child import run
run(int(sys.argv[1]), sys.argv[2])
"""


Answer = TypeVar("Answer")
LOOK_S = 0.25  # whether it still runs
ENDS_S = 2.0  # once it has answered: an orderly end of Python with torch takes half a second


class Child:
    """A new process that calls ``function``, of a module, with a connection to this one, and its import path.

    Whatever it has started ends with it; it ends with this process, and ``folder`` is removed then.
    """

    def __init__(self, function: Callable[[Connection], None], *, folder: str = "", **how: Any) -> None:
        """``how``: further arguments of ``subprocess.Popen``."""
        self._end, other = Pipe()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", CHILD, str(other.fileno()), folder],
                stdin=subprocess.PIPE,
                pass_fds=[other.fileno()],
                start_new_session=True,  # a Ctrl-C is for this process, which ends that one
                **how,
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended at once, which ``receive`` says
            self._process.stdin.write(pickle.dumps([*sys.path]) + pickle.dumps(function))
            self._process.stdin.flush()  # it stays open: its end says that this process is gone

    def send(self, item: object) -> None:
        """For the function's connection; nothing where it is gone, which ``receive`` says."""
        with suppress(OSError):
            self._end.send(item)

    def receive(self, seconds: float) -> Any:
        """What it sends in this time, or None. Raises ``EOFError`` when it is over."""
        if not self._end.poll(seconds):
            # what it has forked may hold the connection open
            if self._process.poll() is not None and not self._end.poll():
                raise EOFError
            return None
        try:
            return self._end.recv()
        except OSError:
            raise EOFError from None

    def exit_code(self, seconds: float) -> int | None:
        """Once it is gone, waited for so long; None: it is there."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode

    def close(self) -> None:
        """End it, and whatever it has started."""
        assert self._process.stdin is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait()
        self._end.close()


def folder_of(command: Sequence[str]) -> str:
    """What a process started by this ``command`` would remove at its end; empty: it is no ``Child``."""
    return command[-1] if CHILD in command else ""


def run(descriptor: int, folder: str) -> None:
    """What the new process does."""
    os.set_inheritable(descriptor, False)
    function = pickle.load(sys.stdin.buffer)
    watch = threading.Thread(target=_end_with_the_other, args=(os.dup(0), folder), daemon=True)
    watch.start()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # code that reads what is typed reads nothing
    os.close(nothing)
    function(Connection(descriptor))


def _end_with_the_other(descriptor: int, folder: str) -> None:
    """End this process when the one that started it is gone."""
    while os.read(descriptor, 1):
        pass
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def call_apart(what: str, limit_s: float, function: Callable[..., Answer], *arguments: object) -> Answer:
    """What ``function``, of a module, returns in a new process with this one's import path and directory.

    Raises ``RequestError`` as it does, and where there is no answer: the process ends itself, or has none
    after ``limit_s``. ``what`` it was about.
    """
    child, until = Child(_answer, stdout=2), monotonic() + limit_s  # what the code prints is no answer
    try:
        child.send((function, arguments))
        while (answer := child.receive(LOOK_S)) is None:
            if monotonic() > until:
                raise RequestError(f"{what} has not returned in {limit_s:g} s")
        child.exit_code(ENDS_S)
    except EOFError:
        code = child.exit_code(ENDS_S)
        ended = "closed the files of its process" if code is None else f"ended its process: {_ended(code)}"
        raise RequestError(f"{what} {ended}") from None
    finally:
        child.close()
    is_answer, found = answer
    if not is_answer:
        raise RequestError(*found)
    return cast(Answer, found)


def _ended(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


def _answer(end: Connection) -> None:
    function, arguments = end.recv()
    try:
        answer = True, function(*arguments)
    except RequestError as error:
        answer = False, error.problems
    end.send(answer)
