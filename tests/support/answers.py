"""How a command answers within this process: its exit code and lines."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from types import FrameType
from typing import Any


class TooLongError(Exception):
    """A command took longer than it may."""


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    code: int
    output: str
    errors: str


def answer_of(main: Callable[[], Any], arguments: Sequence[str], limit_s: float) -> Answer:
    """``raybench`` with these arguments, in this process's main thread; ``main`` is ``raybench.study``'s.

    Whatever comes out of it but its own end is raised; ``TooLongError`` after ``limit_s``.
    """
    output, errors, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["raybench", *arguments]
    try:
        with at_most(limit_s), redirect_stdout(output), redirect_stderr(errors):
            try:
                main()
            except SystemExit as end:
                code = end.code
    finally:
        sys.argv = before
    return Answer(code if isinstance(code, int) else 0, output.getvalue(), errors.getvalue())


@contextmanager
def at_most(limit_s: float) -> Iterator[None]:
    """Inside, ``TooLongError`` is raised after so many seconds of a core, or ten times as many of the clock.

    What a busy machine takes from this process does not count, nor do the imports before.
    """
    from raybench import workloads  # torch takes seconds, and what cuts its import short breaks it
    from raybench.workloads import causal_lm, text, vision

    assert all((workloads, causal_lm, text, vision))

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLongError(f"longer than {limit_s:g} s")

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, limit_s),
        (signal.SIGALRM, signal.ITIMER_REAL, 10 * limit_s),
    )
    before = {number: signal.signal(number, stop) for number, _, _ in timers}
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, timer, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
