"""The user's code, called so that whatever it does ends in a line of words."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from raybench.errors import CODE_FAILS, RaybenchError, RequestError, text_of
from raybench.workloads.frames import line_of

SILENT_S = 30.0  # data may take longer to be read, so it is named and not ended
_limit: tuple[float, str] | None = None  # of each call, in s, and the field that sets it


class _TooLateError(BaseException):
    """The code was given up; no ``Exception``, which the code may catch."""


@contextmanager
def ended_after(limit_s: float, field: str) -> Iterator[None]:
    """Inside, a call of the user's code that takes longer is ended; ``field`` of a study says how long.

    In the main thread only, and where the code comes back to Python: no other code can be ended from within.
    """
    global _limit
    before, _limit = _limit, (limit_s, field)
    try:
        yield
    finally:
        _limit = before


@contextmanager
def fails_in_words(what: str, more: str = "") -> Iterator[None]:
    """Whatever the user's code raises inside, by sys.exit too, is one line, with where; raybench's own stays.

    ``what`` is named on stderr where it has not come back after ``SILENT_S``.
    """
    late = threading.Timer(SILENT_S, _say, [f"{what} has not returned for {SILENT_S:g} s (Ctrl-C ends it)"])
    late.daemon = True
    late.start()
    try:
        with _exit_raises(), _alarm():
            yield
    except RaybenchError:
        raise
    except _TooLateError as error:
        assert _limit is not None
        limit_s, field = _limit
        line = line_of(error)
        where = f" ({line})" if line else ""
        raise RequestError(f"{what} has not returned in {limit_s:g} s, of {field}{where}{more}") from error
    except CODE_FAILS as error:
        text, line = text_of(error), line_of(error)
        told = (f": {text}" if text else "") + (f" ({line})" if line else "")
        raise RequestError(f"{what} raised {type(error).__name__}{told}{more}") from error
    finally:
        late.cancel()


@contextmanager
def _alarm() -> Iterator[None]:
    """Inside, ``_TooLateError`` is raised in this thread when the limit of ``ended_after`` has passed."""
    if _limit is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _raise_too_late)
    timer = signal.setitimer(signal.ITIMER_REAL, _limit[0])
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)


def _raise_too_late(number: int, frame: FrameType | None) -> NoReturn:
    raise _TooLateError


@contextmanager
def _exit_raises() -> Iterator[None]:
    """Inside, ``os._exit`` in this thread raises ``SystemExit``: it would end raybench without a word.

    Processes that the code forks, and other threads (a deadline's is one), leave by it as before.
    """
    here, leave = (os.getpid(), threading.get_ident()), os._exit

    def exit_or_raise(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) == here:
            raise SystemExit(f"os._exit({status})")
        leave(status)

    os._exit = exit_or_raise
    try:
        yield
    finally:
        os._exit = leave


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
