"""The first half of each batch: what a smaller batch takes, without data of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from raybench.errors import InvalidBatchError
from raybench.worker.batches import Batches
from raybench.workloads.batch_counts import MOST_PARTS, samples_of
from raybench.workloads.protocol import Workload

PLAIN = (str, bytes, int, float, bool)


class HalfBatches:
    """The first half of each batch of another supply."""

    prefetched = 0

    def __init__(self, batches: Batches, size: int, workload: Workload) -> None:
        self._batches, self._size, self._workload = batches, size, workload
        self._is_checked = False

    def next(self) -> Any:
        """Half of the next one.

        Raises ``InvalidBatchError`` where what is cut of the first one has not half of its samples.
        """
        batch = self._batches.next()
        half = _first_half(batch, self._size)
        if not self._is_checked:
            self._check(batch, half)
            self._is_checked = True
        return half

    def _check(self, batch: Any, half: Any) -> None:
        whole = samples_of(self._workload, batch, self._size)
        asked = whole * (self._size // 2) / self._size
        cut = samples_of(self._workload, half, self._size // 2, "half of a batch")
        if cut != asked:
            raise InvalidBatchError(f"half of a batch: {asked:g} of {whole} samples (received {cut})")


def _first_half(batch: Any, size: int) -> Any:
    """The first half of everything with ``size`` samples; what has none is left as it is."""
    if isinstance(batch, torch.Tensor | np.ndarray):
        return batch[: size // 2] if batch.ndim and len(batch) == size else batch
    if isinstance(batch, dict):
        return {key: _first_half(value, size) for key, value in batch.items()}
    if isinstance(batch, Mapping):
        copied: Any = type(batch)
        return copied({key: _first_half(value, size) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a named tuple
        return type(batch)(*(_first_half(value, size) for value in batch))
    if isinstance(batch, list | tuple):
        if len(batch) == size and (size > MOST_PARTS or all(isinstance(each, PLAIN) for each in batch)):
            return batch[: size // 2]  # a list of samples, as they are counted
        return type(batch)(_first_half(value, size) for value in batch)
    return batch
