"""What Ray Tune is told when it asks for a trial."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

from raybench.launch.tune_runner import TuneRequests


def trial(number: int) -> Any:
    return SimpleNamespace(config={"number": number}, over=None)


def test_trials_are_handed_out_one_after_the_other() -> None:
    requests, first, second = TuneRequests(), trial(1), trial(2)
    requests.hand(first)
    assert requests.suggest("x") == {"number": 1}
    requests.hand(second)
    assert requests.suggest("y") is None  # Tune has the first one's events to look for
    requests.on_trial_complete("x", {"state": "complete"})
    assert first.over is not None
    assert requests.suggest("y") == {"number": 2}
    assert second.over is None


def test_close_ends_tune_with_the_trial_that_runs() -> None:
    requests = TuneRequests()
    requests.hand(trial(1))
    assert requests.suggest("x") == {"number": 1}
    requests.close()
    assert requests.suggest("y") is None
    requests.on_trial_complete("x", error=True)
    assert requests.suggest("y") == TuneRequests.FINISHED


def test_tune_can_write_it_down() -> None:
    """It pickles what it is given; nothing of it is read again."""
    requests = TuneRequests()
    requests.hand(trial(1))
    assert vars(pickle.loads(pickle.dumps(requests))) == {}
    assert vars(copy.copy(requests)) == {}
