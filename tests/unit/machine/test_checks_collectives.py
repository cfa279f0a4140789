"""Two workers that hang, fail or talk to each other."""

import random

import pytest

from raybench.machine import checks
from raybench.machine.checks import all_reduce_words, median_interval


class HangingWorkers:
    """Two workers whose time passes, on a clock of their own, until they are ended."""

    def __init__(self, monkeypatch):
        self._now, self.ended, self.pid, self.returncode = 1000.0, False, 4321, None
        monkeypatch.setattr(checks.time, "monotonic", lambda: self._now)
        monkeypatch.setattr(checks.subprocess, "Popen", lambda command, **options: self)
        monkeypatch.setattr(checks.os, "killpg", self._end)

    def communicate(self, timeout=None):
        if not self.ended:
            self._now += timeout
            raise checks.subprocess.TimeoutExpired("", timeout)

    def poll(self):
        return -9 if self.ended else None

    def _end(self, pid, number):
        assert pid == self.pid
        self.ended = True


@pytest.mark.parametrize("taken", [0.5, None])
def test_workers_that_hang_are_ended(monkeypatch, taken):
    found, workers = _workers_that_hang(monkeypatch, taken)
    assert workers.ended
    assert found.status == "missing"
    assert found.found == "two workers did not finish in 30 s"


def test_workers_that_hang_beside_others_show_nothing(monkeypatch):
    found, workers = _workers_that_hang(monkeypatch, 1.75)
    assert workers.ended
    assert found.status == "warning"
    assert found.found.endswith(", while other programs took 1.75 of 2 cores")
    assert found.mend.startswith("once they are idle: ")


def _workers_that_hang(monkeypatch, taken):
    """Of two cores others take ``taken``."""
    workers = HangingWorkers(monkeypatch)
    busy = lambda: taken and 100.0 + taken * checks.time.monotonic()  # noqa: E731
    monkeypatch.setattr(checks, "busy_core_seconds", busy)
    monkeypatch.setattr(checks, "own_core_seconds", lambda with_children: 7.0)
    monkeypatch.setattr(checks.host, "allowed_cores", lambda: (0, 1))
    (found,) = checks.all_reduce()
    return found, workers


def test_what_this_process_takes_is_not_of_others(monkeypatch):
    now, busy_s, own_s = iter([10.0, 20.0]), iter([100.0, 109.0]), iter([3.0, 9.0])
    monkeypatch.setattr(checks.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(checks, "busy_core_seconds", lambda: next(busy_s))
    monkeypatch.setattr(checks, "own_core_seconds", lambda with_children: next(own_s))
    assert checks._CoresOfOthers().mean() == pytest.approx(0.3)


def test_the_words_of_an_all_reduce():
    words = all_reduce_words("gloo", 16 * 2**20, [0.01] * 19 + [0.02])
    assert (
        words == "2 workers, gloo, 16 MiB: median 10.00 ms [10.00, 10.00], n = 20; 1.68 GB/s of bus bandwidth"
    )


def test_the_interval_of_a_median():
    assert median_interval([float(i) for i in range(20)]) == (5.0, 14.0)  # tables: ranks 6 and 15
    assert median_interval([float(i) for i in range(10)]) == (1.0, 8.0)  # ranks 2 and 9
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert median_interval([1.0]) == (1.0, 1.0)
    rng = random.Random(0)
    hits = 0
    for _ in range(2000):
        low, high = median_interval([rng.expovariate(1) for _ in range(20)])
        hits += low <= 0.6931 <= high
    assert 0.94 <= hits / 2000 <= 0.98
