"""The user's code, called so that whatever it does ends in a line of words."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from raybench.errors import CODE_FAILS, RaybenchError, RequestError, text_of
from raybench.workloads.frames import line_of

SILENT_S = 30.0  # data may take longer to be read, so it is named and not ended


@contextmanager
def fails_in_words(what: str, more: str = "") -> Iterator[None]:
    """Whatever the user's code raises inside, by sys.exit too, is one line, with where; raybench's own stays.

    ``what`` is named on stderr where it has not come back after ``SILENT_S``.
    """
    late = threading.Timer(SILENT_S, _say, [f"{what} has not returned for {SILENT_S:g} s (Ctrl-C ends it)"])
    late.daemon = True
    late.start()
    try:
        with _exit_raises():
            yield
    except RaybenchError:
        raise
    except CODE_FAILS as error:
        text, line = text_of(error), line_of(error)
        told = (f": {text}" if text else "") + (f" ({line})" if line else "")
        raise RequestError(f"{what} raised {type(error).__name__}{told}{more}") from error
    finally:
        late.cancel()


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
