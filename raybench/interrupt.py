"""SIGINT and SIGTERM as one exception in the main thread, held back where it would do harm."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from raybench.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_raising = 0
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
    global _raising
    before = {number: signal.signal(number, _on_signal) for number in SIGNALS}
    _raising += 1
    try:
        yield
    finally:
        _raising -= 1
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Inside, a signal waits; it is raised at the end. For what must not stop half-way.

    Python handlers are not inherited by programs that are started meanwhile; a blocked mask would be.
    """
    global _held, _waiting
    _held += 1
    try:
        yield
    finally:
        _held -= 1
        if _raising:
            for number in SIGNALS:  # whoever was called may have put its own handlers there: Ray does
                signal.signal(number, _on_signal)
        if not _held and _waiting is not None:
            number, _waiting = _waiting, None
            raise Interrupted(signal.Signals(number).name)

