"""The first half of each batch: what a smaller batch takes, without data of its own."""

from __future__ import annotations

from typing import Any

import torch

from raybench.worker.batches import Batches


class HalfBatches:
    """The first half of each batch of another supply."""

    prefetched = 0

    def __init__(self, batches: Batches, size: int) -> None:
        self._batches, self._size = batches, size

    def next(self) -> Any:
        """Half of the next one."""
        return _first_half(self._batches.next(), self._size)


def _first_half(batch: Any, size: int) -> Any:
    """The first half of every tensor with ``size`` samples; what has none is left as it is."""
    if isinstance(batch, torch.Tensor):
        return batch[: size // 2] if batch.dim() and len(batch) == size else batch
    if isinstance(batch, dict):
        return {key: _first_half(value, size) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a named tuple
        return type(batch)(*(_first_half(value, size) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_first_half(value, size) for value in batch)
    return batch
