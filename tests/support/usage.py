"""What processes hold of memory and files while trials are done, from the first to the last."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

SETTLED = 2  # trials until a process has what it needs
NEIGHBOURS = 5  # samples that one figure is the median of
MIB = 2**20


@dataclass(frozen=True)
class Sample:
    """What a process holds after so many trials."""

    trials: int
    memory_bytes: int  # resident
    files: int  # open, sockets and pipes too


class Usage:
    """Of all processes that had one role, each from its ``SETTLED``th trial on."""

    def __init__(self) -> None:
        self._began = dict[psutil.Process, int]()
        self._settled: dict[psutil.Process, list[Sample]] = defaultdict(list)

    def look(self, process: psutil.Process, trials: int) -> None:
        """One sample, unless the process is gone."""
        try:
            memory_bytes, files = process.memory_info().rss, process.num_fds()
        except psutil.Error:
            return
        if memory_bytes:  # none is left of a process that has ended, and that nobody has asked how
            self.add(process, Sample(trials, memory_bytes, files))

    def add(self, process: psutil.Process, sample: Sample) -> None:
        """One sample."""
        if sample.trials - self._began.setdefault(process, sample.trials) >= SETTLED:
            self._settled[process].append(sample)

    def words(self) -> str:
        """What the process that saw the most trials held at first, and how much more at last."""
        if not self._settled:
            return "none lived long enough"
        first, last = self._ends()
        return (
            f"{first.memory_bytes / MIB:.0f} MiB and {first.files} files, in one over "
            f"{last.trials - first.trials} trials {(last.memory_bytes - first.memory_bytes) / MIB:+.1f} MiB "
            f"and {last.files - first.files:+d} files; {len(self._settled)} processes"
        )

    def grew(self, memory_bytes: int, files: int) -> bool:
        """Whether that process had more than this beside what it held at first.

        A median over ``NEIGHBOURS``: what a driver takes for its report, once, is no growth.
        """
        if not self._settled:
            return False
        first, last = self._ends()
        return last.memory_bytes - first.memory_bytes > memory_bytes or last.files - first.files > files

    def _ends(self) -> tuple[Sample, Sample]:
        longest = max(self._settled.values(), key=lambda samples: samples[-1].trials - samples[0].trials)
        return _middle(longest[:NEIGHBOURS]), _middle(longest[-NEIGHBOURS:])


def _middle(samples: Sequence[Sample]) -> Sample:
    memory = statistics.median_low(each.memory_bytes for each in samples)
    return Sample(samples[-1].trials, memory, statistics.median_low(each.files for each in samples))
