"""How Ray Tune gets its trials: it asks a searcher, and this one hands out what the study submits.

Which setting is worth a trial is asked of ``plan.search`` alone; Tune is told what came out.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import Any, Protocol

from ray.tune.search import Searcher

Config = dict[str, Any]


class Handed(Protocol):
    """A trial that Tune may begin when there is room for it. Its methods are called in Tune's thread."""

    began: float | None  # when Tune took it, by ``monotonic``
    over: float | None  # when Tune had ended it

    def take(self) -> Config | None:
        """Take its places; Tune's configuration of it, or None while there is no room."""
        ...

    def give_back(self) -> None:
        """Give its places back: its workers are gone."""
        ...


class TuneRequests(Searcher):  # type: ignore[misc]
    """Tune's thread asks (``suggest``), the study's thread submits (``hand``)."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._waiting: deque[Handed] = deque()
        self._running: dict[str, Handed] = {}
        self._closed = self._parked = False

    def hand(self, trial: Handed) -> None:
        """A trial more."""
        with self._changed:
            self._waiting.append(trial)
            self._changed.notify_all()

    def withdraw(self, trial: Handed) -> bool:
        """Take a trial back; False where Tune has begun it."""
        with self._changed:
            if trial not in self._waiting:
                return False
            self._waiting.remove(trial)
            return True

    def close(self) -> None:
        """No more trials: Tune ends with those that run."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def park(self) -> None:
        """Hold Tune's thread for ever when it asks next: Ray is about to be ended under it."""
        with self._changed:
            self._parked = True

    def suggest(self, trial_id: str) -> Config | str | None:
        """The oldest waiting trial; sleeps while there is nothing that Tune could do."""
        with self._changed:
            while True:
                if not self._parked:
                    if self._waiting and (config := self._waiting[0].take()) is not None:
                        trial = self._running[trial_id] = self._waiting.popleft()
                        trial.began = monotonic()
                        return config
                    if self._closed:
                        return str(self.FINISHED)
                    if self._running:
                        return None  # Tune looks for their events, and asks again
                self._changed.wait()

    def on_trial_complete(self, trial_id: str, result: Config | None = None, error: bool = False) -> None:
        """The trial is over, well or with an error of its process."""
        with self._changed:
            trial = self._running.pop(trial_id)
            trial.give_back()
            trial.over = monotonic()

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: what a study goes on from are its records."""

    def __getstate__(self) -> Config:
        return {}  # Tune pickles it for a run that is restored; none ever is
