"""What a workload of one's own may have besides model, data and loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from raybench.errors import InvalidTrialError
from raybench.workloads.protocol import left_out_of, optimizer_of, read_samples
from raybench.workloads.schedule import schedule_of


class Plain:
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1))

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        loss: torch.Tensor = model(batch).mean()
        return loss


class ByParameters(Plain):
    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, 0.1)


class ByNames(Plain):
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        named = dict(model.named_parameters())
        plain = [parameter for name, parameter in named.items() if name.endswith("bias")]
        decayed = [parameter for name, parameter in named.items() if not name.endswith("bias")]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, 0.1)


def test_an_optimizer_gets_the_model_where_its_argument_is_called_so() -> None:
    model = Plain().model()
    model[0].requires_grad_(False)
    by_parameters, by_names = optimizer_of(ByParameters(), model), optimizer_of(ByNames(), model)
    assert by_parameters is not None
    assert by_names is not None
    assert len(by_parameters.param_groups[0]["params"]) == 4  # those that are trained
    assert [len(group["params"]) for group in by_names.param_groups] == [3, 3]
    assert optimizer_of(Plain(), model) is None


def rates_of(workload: Any, steps: int, steps_per_epoch: int = 2, epochs: int = 3) -> list[list[float]]:
    optimizer = optimizer_of(workload, workload.model())
    assert optimizer is not None
    schedule = schedule_of(workload, optimizer, epochs, steps_per_epoch)
    assert schedule is not None
    found = [schedule.rates(step) for step in range(steps)]
    assert {group["lr"] for group in optimizer.param_groups} == {0.1}  # the measured one is left alone
    assert len(schedule._scheduler.optimizer.state) == 0
    return found


def test_a_scheduler_is_stepped_as_it_is_made_for() -> None:
    class EveryStep(ByNames):
        def scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
            return lr_scheduler.ExponentialLR(optimizer, 0.5)

    class EveryEpoch(ByNames):
        def scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
            return lr_scheduler.ExponentialLR(optimizer, 0.5), "epoch"

    class ToTheEnd(ByNames):
        def scheduler(self, optimizer: torch.optim.Optimizer, steps: int) -> Any:
            return lr_scheduler.OneCycleLR(optimizer, 0.4, total_steps=steps)

    assert rates_of(EveryStep(), 3) == [[0.1, 0.1], [0.05, 0.05], [0.025, 0.025]]
    assert [first for first, _ in rates_of(EveryEpoch(), 5)] == [0.1, 0.1, 0.05, 0.05, 0.025]
    cycle = [first for first, _ in rates_of(ToTheEnd(), 6)]
    assert max(cycle) == pytest.approx(0.4, rel=0.1)
    assert cycle[-1] < 1e-4


def test_a_resumed_training_goes_on_at_its_step() -> None:
    class EveryStep(ByParameters):
        def scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
            return lr_scheduler.CosineAnnealingLR(optimizer, 10)

    optimizer = optimizer_of(EveryStep(), Plain().model())
    assert optimizer is not None
    schedule = schedule_of(EveryStep(), optimizer, 5, 2)
    assert schedule is not None
    assert schedule.rates(4) == [pytest.approx(0.05 * (1 + math.cos(0.4 * math.pi)))]


@pytest.mark.parametrize(
    ("make", "received"),
    [
        (lr_scheduler.ReduceLROnPlateau, r"\(received ReduceLROnPlateau\)"),
        (lambda optimizer: (lr_scheduler.ExponentialLR(optimizer, 0.5), "batch"), "ExponentialLR, 'batch'"),
        (lambda optimizer: 0.5, r"\(received float\)"),
    ],
)
def test_what_cannot_be_stepped_by_a_count_is_refused(make: Any, received: str) -> None:
    class Own(ByParameters):
        scheduler = staticmethod(make)

    optimizer = optimizer_of(Own(), Plain().model())
    assert optimizer is not None
    with pytest.raises(InvalidTrialError, match=received):
        schedule_of(Own(), optimizer, 1, 1)


def test_what_steps_leave_out_is_what_the_workload_has_not() -> None:
    class Clips(Plain):
        def left_out(self) -> tuple[str, ...]:
            return ("callbacks",)

        def after_backward(self, model: nn.Module) -> None:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    assert left_out_of(Plain()) == ("gradient clipping", "scheduler", "logging", "evaluation")
    assert left_out_of(Clips()) == ("scheduler", "logging", "evaluation", "callbacks")


def test_a_data_set_that_gives_whole_batches_hands_them_on_untouched() -> None:
    class Columns:
        def __getitems__(self, indices: list[int]) -> dict[str, list[int]]:
            return {"x": [10 * index for index in indices]}

    assert read_samples(Columns(), range(2)) == {"x": [0, 10]}
    assert read_samples(["a", "b", "c"], (2, 0)) == ["c", "a"]
