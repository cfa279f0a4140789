"""The steppers of one model: under DataParallel too they have one optimizer state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec
from raybench.worker.devices.device import Device
from raybench.worker.steps.variants import plain_run, strategy_run
from raybench.worker.strategies.models import StrategyModels, set_kernels
from tests.unit.studies import config


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
    workload, batches = Workload(), Batches()
    adam = OptimizerSpec(name="adam", learning_rate=0.001)
    asked = config(setting=Setting(strategy="dp"), optimizer=adam)
    models = StrategyModels(asked, workload, workload.model(), batches, Device(), batches_of_all=batches)
    models.bare.step()
    team: Any = SimpleNamespace(leads=True, size=2)
    run = strategy_run("ddp", models, team)
    run.step()
    for each in (run, plain_run(models)):
        assert each.release == models.device.release_memory  # which the other process on this GPU may need
    states = [
        [value for values in stepper.optimizer.state.values() for value in values.values()]
        for stepper in (models.bare, models.wrapped)
        if stepper
    ]
    assert len(states[0]) == 2 * 3  # of two parameters: two moments and a count
    assert [id(value) for value in states[0]] == [id(value) for value in states[1]]
    assert {float(value) for value in states[0] if value.dim() == 0} == {2.0}  # both have stepped


@pytest.mark.parametrize("kernels", ["foreach", "fused"])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_kernels_of_an_optimizer_are_the_settings_and_its_updates_the_same(name, kernels):
    updated = []
    for setting in (Setting(), Setting(optimizer_kernels=kernels)):
        torch.manual_seed(0)
        spec = OptimizerSpec(name=name, momentum=0.9 if name == "sgd" else 0.0)
        asked = config(setting=setting, optimizer=spec)
        models = StrategyModels(asked, Workload(), Workload().model(), Batches(), Device())
        for _ in range(3):
            models.bare.step()
        assert all(
            group[kernels] is (setting.optimizer_kernels == kernels or None)
            for group in models.bare.optimizer.param_groups
        )
        updated.append([each.detach().clone() for each in models.bare.module.parameters()])
    torch.testing.assert_close(*updated)


def test_another_kernel_is_not_handed_what_a_fused_one_takes():
    optimizer = torch.optim.AdamW(nn.Linear(2, 2).parameters(), fused=True)
    assert optimizer._step_supports_amp_scaling
    set_kernels(optimizer, "foreach")
    assert not getattr(optimizer, "_step_supports_amp_scaling", False)


def test_kernels_that_an_optimizer_has_not_are_refused():
    optimizer = torch.optim.LBFGS(nn.Linear(2, 2).parameters())
    with pytest.raises(InvalidTrialError, match="optimizer_kernels fused: LBFGS has none"):
        set_kernels(optimizer, "fused")
