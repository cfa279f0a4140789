"""Two workers that hang, fail or talk to each other."""

from raybench.machine import checks
from raybench.machine.checks import all_reduce_words


def test_workers_that_hang_are_reported(monkeypatch):
    def hang(command, *, timeout, **options):
        raise checks.subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(checks.subprocess, "run", hang)
    (found,) = checks.all_reduce()
    assert found.status == "missing"
    assert found.found.startswith("two workers did not finish in 70 s")


def test_the_words_of_an_all_reduce():
    words = all_reduce_words("gloo", 16 * 2**20, [0.01] * 19 + [0.02])
    assert (
        words == "2 workers, gloo, 16 MiB: median 10.00 ms [10.00, 10.00], n = 20; 1.68 GB/s of bus bandwidth"
    )
