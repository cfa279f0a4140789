"""Two workers that hang, fail or talk to each other."""

import random
import re
import sys
import time

import pytest

from raybench.machine.checks import collectives
from raybench.machine.checks.collectives import all_reduce_words, median_interval


def _self_test_that(monkeypatch, code):
    popen = collectives.subprocess.Popen

    def instead(command, **options):
        return popen([sys.executable, "-c", code], **options)

    monkeypatch.setattr(collectives.subprocess, "Popen", instead)


def _workers_that_hang(monkeypatch, usable, busy_seconds):
    _self_test_that(monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(collectives, "ALL_REDUCE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(collectives, "busy_core_seconds", busy_seconds)
    monkeypatch.setattr(collectives.cores, "allowed_cores", lambda: tuple(range(usable)))
    (found,) = collectives.all_reduce()
    return found


@pytest.mark.parametrize("taken", [0.5, None])
def test_workers_that_hang_are_ended(monkeypatch, taken):
    found = _workers_that_hang(monkeypatch, 2, lambda: taken and taken * time.monotonic())
    assert found.status == "missing"
    assert found.found == "two workers did not finish in 0 s"


def test_workers_that_hang_beside_others_show_nothing(monkeypatch):
    found = _workers_that_hang(monkeypatch, 2, lambda: 1.8 * time.monotonic())
    assert found.status == "warning"
    assert re.fullmatch(r".*, while other programs took 1\.[678]\d of 2 cores", found.found)
    assert found.mend.startswith("once they are idle: ")


def test_what_this_process_takes_is_not_of_others(monkeypatch):
    monkeypatch.setattr(collectives, "busy_core_seconds", time.process_time)
    look, mine = collectives._CoresOfOthers(), time.process_time()
    while time.process_time() < mine + 0.5:
        pass
    assert look.mean() == pytest.approx(0.0, abs=0.1)


def test_workers_that_fail_say_why(monkeypatch):
    _self_test_that(monkeypatch, "raise SystemExit('no route to host')")
    (found,) = collectives.all_reduce()
    assert found.found == "two workers failed with code 1: no route to host"


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
