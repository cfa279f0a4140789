"""What Ray Tune is told when it asks for a trial."""

from __future__ import annotations

import copy
import pickle
import threading
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("ray.tune")

from raybench.launch.tune_requests import TuneRequests


@dataclass(eq=False)
class Trial:
    number: int
    room: bool = True
    began: float | None = None
    over: float | None = None
    given_back: bool = False

    def take(self) -> dict[str, Any] | None:
        return {"number": self.number} if self.room else None

    def give_back(self) -> None:
        self.given_back = True


class Asking(threading.Thread):
    """Tune's thread, which asks once."""

    def __init__(self, requests: TuneRequests) -> None:
        super().__init__(daemon=True)
        self.requests, self.answer = requests, "none yet"  # type: Any
        self.start()

    def run(self) -> None:
        self.answer = self.requests.suggest("asked")


def test_trials_are_handed_out_in_their_order_as_far_as_there_is_room() -> None:
    requests, first, second = TuneRequests(), Trial(1), Trial(2, room=False)
    requests.hand(first)
    requests.hand(second)
    assert requests.suggest("x") == {"number": 1}
    assert first.began is not None
    assert requests.suggest("y") is None  # Tune has the first one's events to look for
    second.room = True
    assert requests.suggest("y") == {"number": 2}
    requests.on_trial_complete("x", {"state": "complete"})
    assert first.given_back
    assert first.over is not None
    assert not second.given_back


def test_tune_sleeps_until_there_is_something_to_do() -> None:
    requests = TuneRequests()
    asking = Asking(requests)
    sleep(0.1)
    assert asking.answer == "none yet"
    requests.hand(Trial(7))
    asking.join(5)
    assert asking.answer == {"number": 7}


def test_a_trial_that_waits_can_be_taken_back() -> None:
    requests, begun, waiting = TuneRequests(), Trial(1), Trial(2, room=False)
    requests.hand(begun)
    requests.hand(waiting)
    assert requests.suggest("x") == {"number": 1}
    assert not requests.withdraw(begun)
    assert requests.withdraw(waiting)
    waiting.room = True
    assert requests.suggest("y") is None


def test_close_ends_tune_and_begins_nothing_more() -> None:
    requests = TuneRequests()
    asking = Asking(requests)
    requests.hand(Trial(1, room=False))
    requests.close()
    asking.join(5)
    assert asking.answer == TuneRequests.FINISHED
    assert requests.suggest("later") == TuneRequests.FINISHED


def test_parked_tune_does_nothing_more_whatever_happens() -> None:
    requests = TuneRequests()
    requests.hand(Trial(1))
    requests.park()
    asking, until = Asking(requests), monotonic() + 0.3
    requests.close()
    while monotonic() < until:
        assert asking.answer == "none yet"
        sleep(0.05)


def test_tune_can_write_it_down() -> None:
    """It pickles what it is given; nothing of it is read again."""
    requests = TuneRequests()
    requests.hand(Trial(1))
    assert vars(pickle.loads(pickle.dumps(requests))) == {}
    assert vars(copy.copy(requests)) == {}
