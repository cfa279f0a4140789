"""Learning rates over the steps of a training."""

import pytest
import torch

from raybench.records.requests import TrainingRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import TrainingSpec
from raybench.worker.training.passes import LearningRates
from raybench.workloads.schedule import schedule_of
from tests.unit import studies


def test_rates_of_every_group_are_scaled_and_warmed_up():
    request = TrainingRequest(
        config=studies.config(world_size=4, setting=Setting(batch_size=8)),
        training=TrainingSpec(epochs=2, learning_rate_scaling="linear", warmup_epochs=1),
    )
    groups = [{"params": [torch.zeros(1)], "lr": rate} for rate in (0.1, 0.5)]
    optimizer = torch.optim.SGD(groups, 0.1)
    rates = LearningRates(request, optimizer)
    # the global batch is four times that of one device, and this the first of two steps that warm up
    assert rates.set(optimizer, 0, 2) == pytest.approx(0.2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.2, 1.0])
    assert rates.set(optimizer, 3, 2) == pytest.approx(0.4)


def test_the_workloads_scheduler_holds_unless_the_study_asks_for_a_warm_up():
    class Own:
        def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
            return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def second_rate(**fields: object) -> float:
        optimizer = torch.optim.SGD([torch.zeros(1)], 0.1)
        training = TrainingSpec(epochs=2, learning_rate_scaling="linear", **fields)
        config = studies.config(world_size=4, setting=Setting(batch_size=8))
        request = TrainingRequest(config=config, training=training)
        rates = LearningRates(request, optimizer, schedule_of(Own(), optimizer, 2, 2))
        return rates.set(optimizer, 1, 2)

    assert second_rate() == pytest.approx(0.2)
    assert second_rate(warmup_epochs=1.0) == pytest.approx(0.4)
