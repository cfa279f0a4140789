"""The batches of steps, as a loader brings them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybench.errors import InvalidBatchError
from raybench.spec.knobs import Setting
from raybench.worker.batches import make_batches
from raybench.worker.devices.device import Device


def test_counts_that_vary_from_batch_to_batch_are_refused() -> None:
    told = iter([7, 7, 6])
    workload: Any = SimpleNamespace(dataset=lambda split: [0.0] * 32, samples=lambda batch: next(told))
    real = SimpleNamespace(input="real")
    config: Any = SimpleNamespace(setting=Setting(workers=0), workload=real, world_size=1, seed=0)
    batches = make_batches(workload, config, 8, 0, Device())
    assert [len(batches.next()) for _ in range(2)] == [8, 8]
    with pytest.raises(InvalidBatchError, match=r"the same for every batch.* \(received 6 and 7\)"):
        batches.next()
