"""A head that is silent for long ends the run where a signal would."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from raybench.errors import RayDiedError
from raybench.launch import liveness, signals

LIMIT_S = 30.0  # of a thread that ends at once


def looked(answers: list[bool], monkeypatch: pytest.MonkeyPatch) -> int:
    """Of how many of these answers of a head, 2 s apart, the watch has asked."""
    now, asked, watch = [1000.0], list[bool](), liveness.RayAlive()

    def answer(host: str, port: int) -> bool:
        assert (host, port) == ("10.0.0.1", 6379)
        now[0] += 2.0
        asked.append(answers[len(asked)])
        if len(asked) == len(answers):
            watch.stop()
        return asked[-1]

    monkeypatch.setattr(liveness, "LOOK_AT_HEAD_S", 0.0)
    monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(liveness, "_answers", answer)
    before = set(threading.enumerate())
    watch.watch_head("10.0.0.1:6379")
    for thread in set(threading.enumerate()) - before:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    return len(asked)


def test_a_head_that_is_silent_for_long_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked([True] * 15 + [False] * 15, monkeypatch) == 25  # after 20 s
    with pytest.raises(RayDiedError, match="6379, has not answered for 20 s"):
        signals.check()


def test_a_head_that_comes_back_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [*[False] * 9, True, *[False] * 9, True]
    assert looked(answers, monkeypatch) == len(answers)
    signals.check()
