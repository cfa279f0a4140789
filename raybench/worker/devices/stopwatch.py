"""One stopwatch for CPUs and GPUs: laps without synchronisation, read at the end."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray


class Stopwatch(Protocol):
    """Marks moments in a stream of work; the times between them are read when the work is done."""

    def start(self) -> None:
        """Forget earlier marks and set the first one."""
        ...

    def lap(self) -> None:
        """Set a mark after the work given so far."""
        ...

    def read(self) -> NDArray[np.float64]:
        """Times between successive marks, in s, shape ``(laps,)``; waits for the device."""
        ...


class CPUStopwatch:
    """``perf_counter``: on CPUs the work is done when the call returns."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def start(self) -> None:
        """Forget earlier marks and set the first one."""
        self._marks = [perf_counter()]

    def lap(self) -> None:
        """Set a mark."""
        self._marks.append(perf_counter())

    def read(self) -> NDArray[np.float64]:
        """Times between successive marks, in s."""
        return np.diff(np.asarray(self._marks))


class CUDAStopwatch:
    """CUDA events on the current stream, so that the CPU may run ahead inside a block."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._used = 0

    def start(self) -> None:
        """Forget earlier marks and set the first one."""
        self._used = 0
        self.lap()

    def lap(self) -> None:
        """Record an event; events are made once and used again."""
        if self._used == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        self._events[self._used].record()
        self._used += 1

    def read(self) -> NDArray[np.float64]:
        """Times between successive events, in s; waits for the last one."""
        events = self._events[: self._used]
        events[-1].synchronize()
        return np.asarray([first.elapsed_time(second) / 1000 for first, second in pairwise(events)])


def stopwatch(device: torch.device) -> Stopwatch:
    """The stopwatch for ``device``."""
    return CUDAStopwatch() if device.type == "cuda" else CPUStopwatch()
