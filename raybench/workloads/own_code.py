"""The user's code, called so that whatever it does ends in a line of words, with the place where it arose."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import raybench
from raybench.errors import CODE_FAILS, RaybenchError, RequestError, printable, text_of
from raybench.spec.counted import counted

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


MOST_FRAMES = 4  # of the user's own code, the innermost first
LONGEST_FRAME = 160  # characters
PYTHON = "Python"
_PACKAGES = ("site-packages", "dist-packages")
_OWN_PACKAGE = str(Path(raybench.__file__).parent)
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


def frames_of(error: BaseException) -> tuple[str, ...]:
    """Printable lines, as ``model.py:31, in loss: return cross_entropy(...)``; empty without a traceback.

    The innermost frame of the user's own code first, then those that called it, then in one line where below
    them it was raised, with how many frames of which packages lie between. Where no frame is the user's
    own, the innermost of all.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [place for place, frame in enumerate(frames) if not package_of(frame.filename)]
    if not own:
        return tuple(_words(frame) for frame in reversed(frames[-MOST_FRAMES:]))
    lines = [_words(frames[place]) for place in reversed(own[-MOST_FRAMES:])]
    below = frames[own[-1] + 1 :]
    if below:
        number = counted(len(below), "frame")
        names = dict.fromkeys(package_of(frame.filename) for frame in below)
        lines.append(printable(f"... {number} of {', '.join(names)} below it: {_place(below[-1])}"))
    return tuple(lines)


def line_of(error: BaseException) -> str:
    """The innermost line of the user's own code, as ``train.py, line 3``; empty where there is none.

    Empty for a fault of syntax too: Python's words for it name the line.
    """
    if isinstance(error, SyntaxError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not package_of(frame.filename)]
    return printable(f"{_short(own[-1].filename)}, line {own[-1].lineno}") if own else ""


def package_of(filename: str) -> str:
    """Whose code a file is: a package's name, or Python's own; empty: the user's."""
    if filename.startswith("<"):  # made while it ran
        return PYTHON
    parts = Path(filename).parts
    for folder in _PACKAGES:
        if folder in parts[:-1]:
            return parts[len(parts) - parts[::-1].index(folder)].removesuffix(".py")
    if Path(filename).is_relative_to(_OWN_PACKAGE):
        return "raybench"
    return PYTHON if Path(filename).is_relative_to(_STANDARD_LIBRARY) else ""


def _words(frame: traceback.FrameSummary) -> str:
    code = f": {frame.line}" if frame.line else ""
    return printable(f"{_place(frame)}{code}", LONGEST_FRAME)


def _place(frame: traceback.FrameSummary) -> str:
    return f"{_short(frame.filename)}:{frame.lineno}, in {frame.name}"


def _short(filename: str) -> str:
    """A file as its module is imported: without the directory in which modules are looked for."""
    path = Path(filename)
    folders = [each for each in sys.path if each and path.is_relative_to(each)]
    return str(path.relative_to(max(folders, key=len))) if folders else path.name
