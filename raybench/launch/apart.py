"""A function in a process of its own: what code does to that one, this one does not notice.

Code may go to another directory, close the output, take the signals, crash in C, leave a thread that never
ends. Only in a process of its own can all of that be undone, and ended.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from time import monotonic
from typing import BinaryIO, TypeVar, cast

from raybench.errors import RequestError

Answer = TypeVar("Answer")
LOOK_S = 0.25  # whether it still runs
ENDS_S = 2.0  # once it has answered: an orderly end of Python with torch takes half a second
# Not the module itself: it is found on the import path, which comes first.
CHILD = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from raybench.launch.apart import answer
answer(int(sys.argv[1]))
"""


def call_apart(what: str, limit_s: float, function: Callable[..., Answer], *arguments: object) -> Answer:
    """What ``function``, of a module, returns in a new process with this one's import path and directory.

    Raises ``RequestError`` as it does, and where there is no answer: the process ends itself, or has none
    after ``limit_s``. ``what`` it was about.
    """
    reader, writer = Pipe(duplex=False)
    with reader:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", CHILD, str(writer.fileno())],
            stdin=subprocess.PIPE,
            stdout=2,  # what the code prints is no answer of raybench's
            pass_fds=[writer.fileno()],
            start_new_session=True,  # a Ctrl-C is for this process, which ends that one, and all that it left
        )
        ends_s = 0.0
        try:
            writer.close()
            _ask(child, pickle.dumps(sys.path) + pickle.dumps((function, arguments)))
            is_answer, answer = _answer(child, reader, limit_s, what)
            ends_s = ENDS_S
        finally:
            _end(child, ends_s)
    if not is_answer:
        raise RequestError(*cast(tuple[str, ...], answer))
    return cast(Answer, answer)


def _ask(child: subprocess.Popen[bytes], question: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(question)
        child.stdin.flush()  # it stays open: its end says that this process is gone
    except BrokenPipeError:  # it ended before it was asked, which is told below
        pass


def _answer(
    child: subprocess.Popen[bytes], reader: Connection, limit_s: float, what: str
) -> tuple[bool, object]:
    """Whether it is an answer, and that, or the lines of a ``RequestError``."""
    until = monotonic() + limit_s
    while not reader.poll(LOOK_S):
        if child.poll() is not None and not reader.poll():
            raise RequestError(f"{what} ended its process: {_ended(child.returncode)}")
        if monotonic() > until:
            raise RequestError(f"{what} has not returned in {limit_s:g} s")
    try:
        told: tuple[bool, object] = reader.recv()
    except (EOFError, OSError):
        try:
            child.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            raise RequestError(f"{what} closed the files of its process") from None
        raise RequestError(f"{what} ended its process: {_ended(child.returncode)}") from None
    return told


def _ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _end(child: subprocess.Popen[bytes], within_s: float) -> None:
    """Let it end by itself for ``within_s``; then it, and whatever it started, is ended."""
    assert child.stdin is not None
    try:
        child.wait(within_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.stdin.close()
        child.wait()


def answer(descriptor: int) -> None:
    """What the new process does: reads the question, and writes the answer to ``descriptor``."""
    os.set_inheritable(descriptor, False)
    asked = cast(BinaryIO, sys.stdin.buffer)
    function, arguments = pickle.load(asked)
    threading.Thread(target=_end_with_the_other, args=(os.dup(0),), daemon=True).start()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # code that reads what is typed reads nothing
    os.close(nothing)
    to = Connection(descriptor, readable=False)
    try:
        told = True, function(*arguments)
    except RequestError as error:
        told = False, error.problems
    to.send(told)


def _end_with_the_other(descriptor: int) -> None:
    """End this process when the one that asked is gone."""
    while os.read(descriptor, 1):
        pass
    os._exit(1)
