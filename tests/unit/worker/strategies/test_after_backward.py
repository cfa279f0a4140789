"""What a workload does with gradients, between the backward pass and the optimizer's step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from raybench.spec.knobs import Setting
from raybench.worker.strategies.stepper import Stepper

LARGEST = 0.01


class Clips:
    def __init__(self) -> None:
        self.norms: list[float] = []

    def model(self) -> nn.Module:
        return nn.Linear(8, 1)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        loss: torch.Tensor = model(batch).mean()
        return loss

    def after_backward(self, model: nn.Module) -> None:
        self.norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), LARGEST)))


class Batches:
    prefetched = 0

    def next(self) -> Any:
        return torch.ones(4, 8)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_gradients_are_clipped_once_a_step_and_unscaled_before(precision: str, accumulation: int) -> None:
    workload, setting = Clips(), Setting(precision=precision, gradient_accumulation=accumulation)
    model = workload.model()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    stepper = Stepper(model, optimizer, workload, Batches(), setting, torch.device("cpu"))
    if stepper.scaler.is_enabled():  # torch's own first scale is too large for gradients of one
        stepper.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    stepper.step()
    assert workload.norms == [pytest.approx(3.0, rel=1e-2)]  # of nine ones, whatever fp16 scales them by
    change = torch.cat([(old - new).flatten() for old, new in zip(before, model.parameters(), strict=True)])
    assert float(change.detach().norm()) == pytest.approx(LARGEST, rel=1e-2)


def test_a_step_that_fp16_leaves_out_is_left_out_with_clipping_too() -> None:
    workload = Clips()
    model = workload.model()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    setting = Setting(precision="fp16")
    stepper = Stepper(model, optimizer, workload, Batches(), setting, torch.device("cpu"))
    stepper.weigh_loss = lambda loss, batch: loss * float("inf")
    stepper.step()
    assert stepper.skipped_steps == 1
