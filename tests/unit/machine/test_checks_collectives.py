"""Two workers that hang, fail or talk to each other."""

from raybench.machine import checks
from raybench.machine.checks import all_reduce_words


class HangingWorkers:
    """Two workers that go on until they are ended."""

    def __init__(self, monkeypatch):
        self.ended, self.pid, self.returncode = False, 4321, None
        monkeypatch.setattr(checks.subprocess, "Popen", lambda command, **options: self)
        monkeypatch.setattr(checks.os, "killpg", self._end)

    def communicate(self, timeout=None):
        if not self.ended:
            raise checks.subprocess.TimeoutExpired("", timeout)

    def poll(self):
        return -9 if self.ended else None

    def _end(self, pid, number):
        assert pid == self.pid
        self.ended = True


def test_workers_that_hang_are_ended(monkeypatch):
    workers = HangingWorkers(monkeypatch)
    (found,) = checks.all_reduce()
    assert workers.ended
    assert found.status == "missing"
    assert found.found.startswith("two workers did not finish in 70 s")


def test_the_words_of_an_all_reduce():
    words = all_reduce_words("gloo", 16 * 2**20, [0.01] * 19 + [0.02])
    assert (
        words == "2 workers, gloo, 16 MiB: median 10.00 ms [10.00, 10.00], n = 20; 1.68 GB/s of bus bandwidth"
    )
