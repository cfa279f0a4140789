"""What makes a difference between a strategy and one device legitimate."""

from __future__ import annotations

import pytest
from torch import nn

from raybench.spec import Setting
from raybench.worker.steps.parity import _may_differ


@pytest.mark.parametrize(
    ("model", "kinds", "number"),
    [
        (nn.Dropout(0.5), {"A100", "T4"}, 1),
        (nn.Dropout(0.5), {"A100"}, 0),
        (nn.Dropout(0.0), {"A100", "T4"}, 0),
        (nn.SyncBatchNorm(4), {"A100"}, 1),
    ],
)
def test_dropout_on_unlike_gpus_and_statistics_of_all_devices(
    model: nn.Module, kinds: set[str], number: int
) -> None:
    assert len(_may_differ(nn.Sequential(model), Setting(), kinds)) == number
