"""What Ray Tune is told when it asks for a trial."""

from __future__ import annotations

import copy
import pickle
import threading
from dataclasses import dataclass
from typing import Any

from raybench.launch.tune_submission import TuneRequests

LIMIT_S = 30.0  # of what happens at once


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
    """Tune's thread, which asks once; it can be waited for until it sleeps."""

    def __init__(self, requests: TuneRequests) -> None:
        super().__init__(daemon=True)
        self.requests, self.answer = requests, "none yet"  # type: Any
        self._slept, changed = threading.Semaphore(0), requests._changed
        wait = changed.wait

        def seen_wait(timeout: float | None = None) -> bool:
            self._slept.release()
            return wait(timeout)

        changed.wait = seen_wait  # type: ignore[method-assign]
        self.start()

    def sleeps(self) -> bool:
        """Whether it has gone to sleep, once more than it was asked here before."""
        return self._slept.acquire(timeout=LIMIT_S)

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
    assert asking.sleeps()
    assert asking.answer == "none yet"
    requests.hand(Trial(7))
    asking.join(LIMIT_S)
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
    asking.join(LIMIT_S)
    assert asking.answer == TuneRequests.FINISHED
    assert requests.suggest("later") == TuneRequests.FINISHED


def test_parked_tune_does_nothing_more_whatever_happens() -> None:
    requests = TuneRequests()
    requests.hand(Trial(1))
    requests.park()
    asking = Asking(requests)
    assert asking.sleeps()
    requests.close()
    assert asking.sleeps()
    assert asking.answer == "none yet"


def test_tune_can_write_it_down() -> None:
    """It pickles what it is given; nothing of it is read again."""
    requests = TuneRequests()
    requests.hand(Trial(1))
    assert vars(pickle.loads(pickle.dumps(requests))) == {}
    assert vars(copy.copy(requests)) == {}
