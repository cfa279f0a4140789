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


@pytest.mark.parametrize(("load", "status"), [(0.5, "missing"), (1.75, "warning")])
def test_workers_that_hang_are_ended(monkeypatch, load, status):
    """Where the machine is busy they show nothing."""
    workers = HangingWorkers(monkeypatch)
    monkeypatch.setattr(checks.os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(checks.host, "usable_cores", lambda: 2)
    (found,) = checks.all_reduce()
    assert workers.ended
    assert found.status == status
    assert found.found.startswith("two workers did not finish in 70 s")


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
