"""Which models are told to be larger than a rank's memory before they are made."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec
from raybench.spec.workloads import MLPSpec
from raybench.worker.memory import refuse_too_large
from raybench.workloads.mlp import MLP

GIB = 2**30
WIDE = MLP(MLPSpec(name="mlp", input_dim=8192, hidden_dim=8192, output_dim=8192, num_layers=2))
WEIGHTS_GIB = 2 * (8192 + 1) * 8192 * 4 / GIB  # 0.50


@pytest.mark.parametrize(
    ("optimizer", "copies"),
    [
        (OptimizerSpec(), 2),
        (OptimizerSpec(momentum=0.9), 3),
        (OptimizerSpec(name="adam"), 4),
        (OptimizerSpec(name="adamw"), 4),
    ],
)
def test_a_model_larger_than_memory_is_told_with_its_numbers(optimizer, copies):
    needed = copies * WEIGHTS_GIB
    refuse_too_large(WIDE, optimizer, Setting(), 2, int(needed * 1.001 * GIB))
    each = "512.1 MiB"
    words = rf"the model alone needs {needed:.1f} GiB \(weights {each}, gradients {each}, .*\), a rank has"
    with pytest.raises(MemoryError, match=words):
        refuse_too_large(WIDE, optimizer, Setting(), 2, int(needed * 0.999 * GIB))


def test_what_is_not_trained_has_no_gradients():
    class Frozen(MLP):
        def model(self) -> nn.Module:
            return super().model().requires_grad_(False)

    spec = MLPSpec(name="mlp", input_dim=8192, hidden_dim=8192, output_dim=8192, num_layers=2)
    refuse_too_large(Frozen(spec), OptimizerSpec(name="adam"), Setting(), 2, int(WEIGHTS_GIB * 1.001 * GIB))
    with pytest.raises(MemoryError, match=r"the model alone needs 512.1 MiB"):
        refuse_too_large(
            Frozen(spec), OptimizerSpec(name="adam"), Setting(), 2, int(WEIGHTS_GIB * 0.999 * GIB)
        )


def test_a_model_that_cannot_be_made_without_storage_is_taken_to_fit():
    class Stubborn:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def model(self) -> nn.Module:
            weights = torch.ones(4)
            assert float(weights.sum()) == 4.0  # needs values
            return nn.Linear(4, 4)

        def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            return model(batch).sum()

    refuse_too_large(Stubborn(), OptimizerSpec(), Setting(), 2, 1)


def test_what_a_workload_keeps_is_not_left_without_storage():
    class Keeping:
        kept: nn.Module | None = None

        def model(self) -> nn.Module:
            if self.kept is None:
                self.kept = nn.Linear(4, 4)
            return self.kept

        def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            return model(batch).sum()

    workload = Keeping()
    refuse_too_large(workload, OptimizerSpec(), Setting(), 2, GIB)
    assert not any(parameter.is_meta for parameter in workload.model().parameters())
