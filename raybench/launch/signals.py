"""SIGINT and SIGTERM as one exception in the main thread, held back where it would do harm.

Raised in the middle of a call of Ray's, an exception comes out as an internal error, or leaves processes
behind: while trials are measured signals are held, and looked for between calls.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from raybench.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_held = 0
_waiting: int | None = None


def _on_signal(number: int, _: FrameType | None) -> None:
    global _waiting
    if _held:
        _waiting = number
        return
    raise Interrupted(signal.Signals(number).name)


@contextmanager
def raising() -> Iterator[None]:
    """Inside, SIGINT and SIGTERM raise ``Interrupted``; afterwards the earlier handlers are back."""
    before = {number: signal.signal(number, _on_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Inside, a signal waits; it is raised at the end. For what must not stop half-way.

    Python handlers are not inherited by programs that are started meanwhile; a blocked mask would be.
    """
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1
    if not _held:
        check()


def check() -> None:
    """Raise ``Interrupted`` if a signal waits: for places inside ``held`` where it is safe to stop."""
    global _waiting
    if _waiting is not None:
        name, _waiting = signal.Signals(_waiting).name, None
        raise Interrupted(name)
