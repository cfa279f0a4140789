from __future__ import annotations

import os

import psutil

from tests.support.usage import MIB, SETTLED, Sample, Usage


def test_first_to_last_is_told_of_settled_processes() -> None:
    usage, process = Usage(), psutil.Process(os.getpid())
    usage.add(process, Sample(0, 10 * MIB, 5))  # it starts
    assert usage.words() == "none lived long enough"
    for trials in range(SETTLED, 100):
        usage.add(process, Sample(trials, (100 + trials) * MIB, 20 + trials // 10))
    usage.add(process, Sample(100, 900 * MIB, 500))  # a report
    short = psutil.Process(os.getppid())
    for trials in range(100, 110):
        usage.add(short, Sample(trials, 700 * MIB, 7))
    assert usage.words() == (
        "104 MiB and 20 files, in one over 94 trials +94.0 MiB and +9 files; 2 processes"
    )
    assert usage.grew(93 * MIB, 100)
    assert usage.grew(1000 * MIB, 8)
    assert not usage.grew(95 * MIB, 9)
