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
    assert usage.words() == (
        "104 MiB and 20 files at first, 197 MiB and 29 files at last, 199 MiB and 29 files at most, "
        "of 1 processes; in one over 93 trials +93.0 MiB, +9 files"
    )
    assert usage.grew(94 * MIB, 100)
    assert usage.grew(1000 * MIB, 8)
    assert not usage.grew(95 * MIB, 9)
