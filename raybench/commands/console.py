"""Where the user reads: a console of raybench's own, apart from what Ray and others print."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

PIPED_WIDTH = 100


@contextmanager
def own_output(log: Path) -> Iterator[Console]:
    """A console on what was stdout, while everything else that is printed goes to ``log``.

    File descriptors 1 and 2 are moved, not only Python's streams: Ray prints from C++ and from processes
    that it starts. Both are back at the end, so that a traceback is seen.

    A stdout that is not descriptor 1, as a notebook's, is written to itself, and is ``log`` for all others.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved_out, saved_err = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    with ExitStack() as last:
        last.callback(_put_back, saved_out, saved_err)
        if _is_descriptor_1(sys.stdout):
            os.close(target)
            encoding = sys.stdout.encoding or "utf-8"
            stream = last.enter_context(
                os.fdopen(os.dup(saved_out), "w", encoding=encoding, errors="replace")
            )
            shown: Any = Lasting(stream, is_gone=not is_read(sys.stdout))
        else:
            shown = sys.stdout
            others = last.enter_context(
                os.fdopen(target, "w", encoding="utf-8", errors="replace", buffering=1)
            )
            last.enter_context(redirect_stdout(others))
            last.enter_context(redirect_stderr(others))
        last.callback(shown.flush)
        yield make_console(shown)


def _is_descriptor_1(stream: Any) -> bool:
    """Whether it is the process's own output: a notebook's says so of itself, and is not."""
    try:
        return isinstance(stream, io.TextIOWrapper | Lasting) and stream.fileno() == 1
    except (OSError, ValueError):
        return False


def _put_back(saved_out: int, saved_err: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    for number, descriptor in ((1, saved_out), (2, saved_err)):
        os.dup2(descriptor, number)
        os.close(descriptor)


def make_console(file: Any = None) -> Console:
    """A console as wide as the terminal; piped, as the variable COLUMNS says, or of a fixed width."""
    # the output of a notebook's cell calls itself a terminal, and moves no cursor
    forced = None if isinstance(file or sys.stdout, io.TextIOWrapper | Lasting) else False
    console = Console(file=file, highlight=False, force_terminal=forced, force_jupyter=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = PIPED_WIDTH
    return console


def is_read(stream: Any) -> bool:
    """Whether somebody may still read what is written to a stream."""
    return not getattr(stream, "is_gone", False)


def say(console: Console, words: str) -> None:
    """A sentence: in a terminal its lines end between words, piped it is one line."""
    console.print(words, soft_wrap=not console.is_terminal, highlight=False, markup=False)


def say_to_copy(console: Console, line: str) -> None:
    """A line with a path or a command that is copied: one line, however narrow the terminal."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)


class Lasting:
    """A stream that goes on, into nothing, once its reader is gone: a pipe's other end, a terminal.

    ``| head -1`` ends no command, and what it writes elsewhere is written all the same.
    """

    def __init__(self, stream: TextIO, *, is_gone: bool = False) -> None:
        self._stream = stream
        self.is_gone = is_gone

    def write(self, text: str) -> int:
        with self._into_nothing_if_gone():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._into_nothing_if_gone():
            self._stream.flush()

    @contextmanager
    def _into_nothing_if_gone(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):  # a full disk is told
                raise
            self.is_gone = True
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())  # with what was not written yet
            os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def lasting(stream: TextIO | None) -> Any:
    """A command's stdout: what it cannot encode is a question mark, what nobody reads goes into nothing."""
    if stream is None:  # closed
        return io.StringIO()
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(errors="replace")
    return Lasting(stream)


def shown_path(path: Path) -> str:
    """A path as short as it is from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
