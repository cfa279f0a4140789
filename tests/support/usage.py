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
        """First and last of all, the most, and the change in the process that saw the most trials."""
        if not self._settled:
            return "none lived long enough"
        every = list(self._settled.values())
        first, last, most = self._first(), _middle(every[-1][-NEIGHBOURS:]), self._most()
        longest = max(every, key=lambda samples: samples[-1].trials - samples[0].trials)
        before, after = _middle(longest[:NEIGHBOURS]), _middle(longest[-NEIGHBOURS:])
        return (
            f"{_words(first)} at first, {_words(last)} at last, {_words(most)} at most, of {len(every)} "
            f"processes; in one over {after.trials - before.trials} trials "
            f"{(after.memory_bytes - before.memory_bytes) / MIB:+.1f} MiB, "
            f"{after.files - before.files:+d} files"
        )

    def grew(self, memory_bytes: int, files: int) -> bool:
        """Whether any process ever had more than this beyond the first."""
        if not self._settled:
            return False
        first, most = self._first(), self._most()
        return most.memory_bytes > first.memory_bytes + memory_bytes or most.files > first.files + files

    def _first(self) -> Sample:
        return _middle(next(iter(self._settled.values()))[:NEIGHBOURS])

    def _most(self) -> Sample:
        samples = [sample for each in self._settled.values() for sample in each]
        return Sample(0, max(each.memory_bytes for each in samples), max(each.files for each in samples))


def _middle(samples: Sequence[Sample]) -> Sample:
    memory = statistics.median_low(each.memory_bytes for each in samples)
    return Sample(samples[-1].trials, memory, statistics.median_low(each.files for each in samples))


def _words(sample: Sample) -> str:
    return f"{sample.memory_bytes / MIB:.0f} MiB and {sample.files} files"
