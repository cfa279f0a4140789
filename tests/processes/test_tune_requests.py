"""Tune's thread waits for a trial, and gets it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from raybench.launch.tune_runner import TuneRequests

LIMIT_S = 30.0  # of what happens at once
NOTHING_S = 0.2  # in which nothing is to happen


class Asking(threading.Thread):
    """Tune's thread, which asks once."""

    def __init__(self, requests: TuneRequests) -> None:
        super().__init__(daemon=True)
        self.requests = requests
        self.answer: Any = "none yet"
        self.start()

    def run(self) -> None:
        self.answer = self.requests.suggest("asked")


def test_tune_sleeps_until_there_is_something_to_do() -> None:
    requests = TuneRequests()
    asking = Asking(requests)
    asking.join(NOTHING_S)
    assert asking.is_alive()
    requests.hand(SimpleNamespace(config={"number": 7}, over=None))  # type: ignore[arg-type]
    asking.join(LIMIT_S)
    assert asking.answer == {"number": 7}
