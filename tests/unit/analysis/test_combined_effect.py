"""What all changes of an ablation bring together: planted, found again."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.results import StudyResults
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.records.requests import Configuration
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, StepCosts, run_all
from tests.unit.studies import study

PLAIN_S = 0.01
EFFICIENCY = {  # by what is changed of batch, accumulation and compression
    (False, False, False): 0.2,
    (True, False, False): 0.4,
    (False, True, False): 0.3,
    (False, False, True): 0.18,
    (True, True, True): 0.9,
}


def costs(config: Configuration, setting: Setting) -> StepCosts:
    """Weak scaling: a step of one device in 10 ms, whatever is changed."""
    changed = (
        setting.batch_size != 8,
        setting.gradient_accumulation != 1,
        setting.gradient_compression != "none",
    )
    if config.world_size == 1:
        return StepCosts(plain_s=PLAIN_S)
    return StepCosts(plain_s=PLAIN_S, exposed_s=PLAIN_S * (1 / EFFICIENCY[changed] - 1))


def ablation() -> StudyResults:
    spec = study(
        workload={"name": "vision", "input": "real"},
        knobs={
            "batch_size": [8, 128],
            "gradient_accumulation": [1, 4],
            "gradient_compression": ["none", "fp16"],
        },
        search={"method": "ablation"},
    )
    plan = make_plan(spec, Resources("cpu", 2, "a CPU"))
    requests = [trial.request for trial in plan.trials()]
    return analyse(plan.study, run_all(FakeRunner(costs, QUIET), requests)[0])


def test_what_all_changes_do_to_efficiency() -> None:
    together = max(ablation().effects.values(), key=lambda each: len(each.changes))
    assert len(together.changes) == 3
    assert together.efficiency_ratio.value == pytest.approx(4.5)
