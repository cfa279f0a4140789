"""How long trials will take."""

import pytest

from raybench.plan.budget import Budget
from raybench.testing import QUIET, FakeRunner, StepCosts
from tests.unit.studies import grid, planned_training


def test_a_training_takes_its_steps_and_a_restart_of_the_loader_in_each_epoch():
    plan = planned_training(knobs={"batch_size": [32]})
    costs = StepCosts(plain_s=0.01, restart_s=2.0)
    records, _ = grid(plan.study, (1, 2), FakeRunner(lambda config, setting: costs, QUIET))
    expected = {
        request.config.world_size: Budget(epoch_samples=6_400).training_cost(request, records)
        for request in plan.training()
    }
    assert expected == pytest.approx({1: 4 * (200 * 0.01 + 2), 2: 4 * (100 * 0.01 + 2)})
