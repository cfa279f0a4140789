"""The steppers of one model: under DataParallel too they have one optimizer state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec
from raybench.worker.devices.cpu import CPUDevice
from raybench.worker.strategies.models import StrategyModels


class Workload:
    def model(self) -> nn.Module:
        return nn.Linear(8, 8)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).square().mean()
        return loss


class Batches:
    prefetched = 0

    def next(self) -> Any:
        return torch.ones(4, 8)


def test_dataparallel_updates_the_state_that_the_bare_model_has(monkeypatch):
    """Without a GPU torch's DataParallel is the bare model, but it is made and stepped as with some."""
    monkeypatch.setattr("raybench.worker.strategies.models.device_ids", lambda team, device: [0, 1])
    workload, setting = Workload(), Setting(strategy="dp")
    adam, batches = OptimizerSpec(name="adam", learning_rate=0.001), Batches()
    models = StrategyModels(
        workload, workload.model(), adam, setting, batches, CPUDevice(), threads=1, batches_of_all=batches
    )
    models.bare.step()
    team: Any = SimpleNamespace(leads=True, size=2)
    wrapped = models.wrap(team)
    wrapped.step()
    states = [
        [value for values in stepper.optimizer.state.values() for value in values.values()]
        for stepper in (models.bare, wrapped)
    ]
    assert len(states[0]) == 2 * 3  # of two parameters: two moments and a count
    assert [id(value) for value in states[0]] == [id(value) for value in states[1]]
    assert {float(value) for value in states[0] if value.dim() == 0} == {2.0}  # both have stepped
