"""SIGINT, SIGTERM and SIGHUP as one exception in the main thread, held back where it would do harm.

Raised in the middle of a call of Ray's, an exception comes out as an internal error, or leaves processes
behind: while trials are measured signals are held, and looked for between calls.

Ray's core takes SIGTERM for its own handler (abseil's), which calls ours and sets an alarm that aborts the
process 3 s later: in the middle of a report, that is. So ours are put back once Ray has started, and an alarm
that was set before that is called off.

``ask`` ends a run in the same way, at the same places: where nobody reads what it says any more, and where
other threads find that it cannot go on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from raybench.errors import Interrupted, RayDiedError

Handler = Callable[[int, FrameType | None], None] | signal.Handlers
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_held = 0
_second_raises = False  # while held: an impatient user does not wait
_waiting: int | None = None
_asked: Interrupted | None = None  # by this process itself, and why


def _on_signal(number: int, _: FrameType | None) -> None:
    global _waiting
    signal.alarm(0)  # abseil's, see above
    if _held and not (_second_raises and _waiting is not None):
        _waiting = number
        return
    _waiting = None
    raise Interrupted(signal.Signals(number).name)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _handled(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Inside, signals have these handlers; outside of the main thread Python takes none."""
    before = {number: signal.signal(number, handlers[number]) for number in handlers if _in_main_thread()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raising() -> AbstractContextManager[None]:
    """Inside, a signal raises ``Interrupted``; afterwards the earlier handlers are back.

    A hangup that is ignored stays so: that is how ``nohup`` lets a command outlive its terminal. Outside of
    the main thread signals stay as they are.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return _handled({each: _on_signal for each in SIGNALS if each != signal.SIGHUP or not is_ignored})


def take_back() -> None:
    """Put the handlers of ``raising`` back in the place of those that Ray has installed meanwhile.

    Does nothing outside of ``raising``, or outside of the main thread.
    """
    if _in_main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is _on_signal:  # Python does not see what C code installs
                signal.signal(number, _on_signal)


def hangup_ignored() -> AbstractContextManager[None]:
    """What is started inside outlives its terminal: a hangup reaches every process that belongs to it.

    So Ray lives until this process has ended it in order. Only in the main thread; elsewhere it does nothing.
    """
    return _handled({signal.SIGHUP: signal.SIG_IGN})


@contextmanager
def held(*, second_raises: bool = False) -> Iterator[None]:
    """Inside, a signal waits; it is raised at the end. For what must not stop half-way.

    With ``second_raises`` a second one is raised at once: for what may take long, and may be cut short.
    Python handlers are not inherited by programs that are started meanwhile; a blocked mask would be.
    """
    global _held, _second_raises
    _held += 1
    before, _second_raises = _second_raises, second_raises
    try:
        yield
    finally:
        _held -= 1
        _second_raises = before
    if not _held:
        check()


def check() -> None:
    """Raise ``Interrupted`` if a signal waits: for places inside ``held`` where it is safe to stop.

    Also where this process has asked for it, by ``ask``.
    """
    global _waiting, _asked
    if _waiting is not None:
        name, _waiting = signal.Signals(_waiting).name, None
        raise Interrupted(name)
    if _asked is not None:
        asked, _asked = _asked, None
        raise asked


def check_death() -> None:
    """Raise ``RayDiedError`` where Ray has died; a signal still waits."""
    global _asked
    if isinstance(_asked, RayDiedError):
        died, _asked = _asked, None
        raise died


def ask(end: Interrupted) -> None:
    """From any thread: the next ``check`` raises it; of several the death of Ray, else the first."""
    global _asked
    if _asked is None or isinstance(end, RayDiedError):
        _asked = end
