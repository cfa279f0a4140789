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

LONGEST_FRAME = 160  # characters
_PACKAGES = {"site-packages", "dist-packages"}
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
        text, line = text_of(error), _line_of(error)
        reported = (f": {text}" if text else "") + (f" ({line})" if line else "")
        raise RequestError(f"{what} raised {type(error).__name__}{reported}{more}") from error


def frame_of(error: BaseException) -> str:
    """The innermost frame of the user's own code, as ``model.py:31, in loss: return cross_entropy(...)``.

    The innermost of all where none is the user's own; empty without a traceback.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own(frame.filename)] or frames
    if not own:
        return ""
    frame = own[-1]
    code = f": {frame.line}" if frame.line else ""
    return printable(f"{_short(frame.filename)}:{frame.lineno}, in {frame.name}{code}", LONGEST_FRAME)


def _line_of(error: BaseException) -> str:
    """The innermost line of the user's own code, as ``train.py, line 3``; empty where there is none.

    Empty for a fault of syntax too: Python's words for it name the line.
    """
    if isinstance(error, SyntaxError):
        return ""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    return printable(f"{_short(own[-1].filename)}, line {own[-1].lineno}") if own else ""


def is_own(filename: str) -> bool:
    """Whether a file is the user's own code: no package's that is installed, and not Python's."""
    if filename.startswith("<") or _PACKAGES & {*Path(filename).parts[:-1]}:  # <: made while it ran
        return False
    return not any(Path(filename).is_relative_to(folder) for folder in (_OWN_PACKAGE, _STANDARD_LIBRARY))


def _short(filename: str) -> str:
    """A file as its module is imported: without the directory in which modules are looked for."""
    path = Path(filename)
    folders = [each for each in sys.path if each and path.is_relative_to(each)]
    return str(path.relative_to(max(folders, key=len))) if folders else path.name
