"""A watchdog that is called off in time watches no more; tests/processes has one that bites."""

from __future__ import annotations

import threading

import pytest

from raybench.worker import watchdog

LIMIT_S = 30.0


@pytest.mark.parametrize("raises", [False, True])
def test_both_watches_are_called_off(raises: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread, and the one in C that needs no GIL."""
    later: list[float | None] = []
    monkeypatch.setattr(
        watchdog.faulthandler, "dump_traceback_later", lambda timeout, **options: later.append(timeout)
    )
    monkeypatch.setattr(watchdog.faulthandler, "cancel_dump_traceback_later", lambda: later.append(None))
    try:
        with watchdog.watchdog(10 * LIMIT_S, "trial 4567"):
            (timer,) = (each for each in threading.enumerate() if isinstance(each, threading.Timer))
            assert later == [10 * LIMIT_S + watchdog.GIL_HELD_AFTER_S]
            if raises:
                raise ValueError
    except ValueError:
        assert raises
    timer.join(LIMIT_S)
    assert not timer.is_alive()
    assert later[1:] == [None]
