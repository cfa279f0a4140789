"""A half batch is half of a batch, or there is none."""

from __future__ import annotations

from collections import UserDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from raybench.errors import InvalidBatchError
from raybench.worker.batches import HalfBatches

Pair = namedtuple("Pair", "inputs labels")


class Supply:
    prefetched = 0

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def next(self) -> Any:
        return self._batch


class Plain:
    """A workload that leaves counting to the first dimension."""


class ByColumns:
    """Its batches are of shape ``(T, B)``."""

    def samples(self, batch: torch.Tensor) -> int:
        return batch.shape[1]


class Items:
    def __init__(self, count: int) -> None:
        self.count = count


class ByItems:
    def samples(self, batch: Any) -> int:
        return int(batch["of"].count if isinstance(batch, dict) else len(batch))


def half(batch: Any, size: int = 16, workload: Any = None) -> Any:
    counting: Any = workload or Plain()
    return HalfBatches(Supply(batch), size, counting).next()


def test_every_way_to_hold_samples_is_cut() -> None:
    rows, labels = torch.arange(48).reshape(16, 3), torch.arange(16)
    assert half(rows).tolist() == rows[:8].tolist()
    of_two = half(Pair(rows, labels))
    assert (len(of_two.inputs), of_two.labels.tolist()) == (8, list(range(8)))
    mapped = half(UserDict({"x": rows, "y": labels}))
    assert isinstance(mapped, UserDict)
    assert (len(mapped["x"]), len(mapped["y"])) == (8, 8)
    assert len(half([rows, np.zeros((16, 2))])[1]) == 8
    assert half([rows, list(range(16))])[1] == list(range(8))
    assert [each.shape for each in half([torch.zeros(2, 3), torch.zeros(2)], size=2)] == [(1, 3), (1,)]
    assert len(half([torch.zeros(5)] * 32, size=32)) == 16  # a list of samples
    assert len(half(torch.zeros(5, 3), size=5)) == 2
    assert half(torch.zeros(16, 4), workload=ByItems()).shape == (8, 4)


@pytest.mark.parametrize(
    ("batch", "workload"),
    [
        (torch.zeros(20, 16), ByColumns()),
        (torch.zeros(16, 16), ByColumns()),  # cut, and by the wrong dimension
        ({"x": torch.zeros(16, 2), "of": Items(16)}, ByItems()),
        ([torch.zeros(5)] * 16, Plain()),  # eight parts are no longer counted as samples
        (Items(16), Plain()),
    ],
)
def test_what_is_not_cut_is_no_half_batch(batch: Any, workload: Any) -> None:
    with pytest.raises(InvalidBatchError):
        half(batch, workload=workload)
