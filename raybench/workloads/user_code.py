"""The user's code, called so that whatever it does ends in a line of words, with the place where it arose."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import raybench
from raybench.errors import CODE_FAILS, RaybenchError, RequestError, printable, text_of
from raybench.spec.plural import plural

MOST_FRAMES = 4  # of the user's own code, the innermost first
LONGEST_FRAME = 160  # characters
PYTHON = "Python"
_PACKAGES = ("site-packages", "dist-packages")
_OWN_PACKAGE = str(Path(raybench.__file__).parent)
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


@contextmanager
def fails_in_words(what: str, more: str = "") -> Iterator[None]:
    """What the user's code raises, by sys.exit too, becomes one line with its place; raybench's own stays."""
    try:
        yield
    except RaybenchError:
        raise
    except CODE_FAILS as error:
        text, line = text_of(error), line_of(error)
        reported = (f": {text}" if text else "") + (f" ({line})" if line else "")
        raise RequestError(f"{what} raised {type(error).__name__}{reported}{more}") from error


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
        number = plural(len(below), "frame")
        names = dict.fromkeys(package_of(frame.filename) for frame in below)
        lines.append(printable(f"... {number} of {', '.join(names)} below it: {_place(below[-1])}"))
    return tuple(lines)


def line_of(error: BaseException) -> str:
    """The innermost line of the user's own code, as ``train.py, line 3``; empty where there is none.

    Empty for a fault of syntax too: Python's words for it name the line.
    """
    if isinstance(error, SyntaxError):
        return ""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not package_of(frame.filename)]
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
