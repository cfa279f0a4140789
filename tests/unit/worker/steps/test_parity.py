"""For which models a strategy's losses are compared with one device's."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from torch import nn

from raybench.spec.knobs import Setting
from raybench.worker.steps.parity import why_not_alike


@pytest.mark.parametrize(
    ("model", "compiles", "kinds", "differs"),
    [
        (nn.Dropout(0.5), False, {"A100"}, False),
        (nn.Dropout(0.5), True, {"A100"}, True),
        (nn.Dropout(0.5), False, {"A100", "T4"}, True),
        (nn.Dropout(0.0), True, {"A100", "T4"}, False),
        (nn.SyncBatchNorm(4), False, {"A100"}, True),
        (nn.BatchNorm1d(4), True, {"A100"}, False),
    ],
)
def test_statistics_of_all_ranks_and_masks_of_another_kind_differ_by_design(
    model: nn.Module, compiles: bool, kinds: Collection[str], differs: bool
) -> None:
    assert bool(why_not_alike(nn.Sequential(model), Setting(compile=compiles), kinds)) is differs
