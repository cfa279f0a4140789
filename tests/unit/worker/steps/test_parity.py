"""For which models a strategy's losses are compared with one device's."""

from __future__ import annotations

import pytest
from torch import nn

from raybench.spec import Setting
from raybench.worker.steps.parity import differs_by_design


@pytest.mark.parametrize(
    ("model", "compiles", "differs"),
    [
        (nn.Dropout(0.5), False, False),
        (nn.Dropout(0.5), True, True),
        (nn.Dropout(0.0), True, False),
        (nn.SyncBatchNorm(4), False, True),
        (nn.BatchNorm1d(4), True, False),
    ],
)
def test_statistics_of_all_ranks_and_masks_of_compiled_code_differ_by_design(
    model: nn.Module, compiles: bool, differs: bool
) -> None:
    assert differs_by_design(nn.Sequential(model), Setting(compile=compiles)) is differs
