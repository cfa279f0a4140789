"""A data set that takes a known time to start, and for each batch; a loss that takes a known time too."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, get_worker_info

from tests.ranks.planted import CLOCK

FEATURES = 4


class SlowSamples(Dataset[Any]):
    """What a loader's process can read ``start_s`` after the moment at which it is about to be started.

    So the time that the process itself takes to start passes inside the wait.
    """

    def __init__(self, length: int, start_s: float, read_s: float) -> None:
        self._length, self._start_s, self._read_s = length, start_s, read_s
        self._ready_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """What travels to a process that starts."""
        return self.__dict__ | {"_ready_at": time.perf_counter() + self._start_s}

    def __len__(self) -> int:
        return self._length

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        if get_worker_info() is not None:
            time.sleep(max(0.0, self._ready_at - time.perf_counter()))
        time.sleep(self._read_s)
        return [torch.full((FEATURES,), float(index)) for index in indices]


class SlowData:
    """A small model on slow samples."""

    def __init__(self, step_s: float, *samples: Any) -> None:
        self._step_s, self._samples = step_s, samples

    def model(self) -> nn.Module:
        return nn.Linear(FEATURES, 1)

    def dataset(self, split: str) -> SlowSamples:
        return SlowSamples(*self._samples)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        deadline = time.perf_counter() + self._step_s
        loss: torch.Tensor = model(batch).mean() * 1e-3
        CLOCK.wait_until(deadline)
        return loss


def slow_data(
    length: int = 64,
    start_s: float = 0.0,
    read_s: float = 0.0,
    step_s: float = 0.010,
) -> SlowData:
    """The workload's factory."""
    return SlowData(step_s, length, start_s, read_s)
