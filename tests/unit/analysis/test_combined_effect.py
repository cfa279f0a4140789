"""What all changes of an ablation bring, and what their batch does: planted, found again."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.attribution import combined_effect
from raybench.analysis.results import StudyResults
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.training import training_requests
from raybench.records.requests import Configuration
from raybench.report.answer import answer, answer_of
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeLearning, FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import exactly, planted, study

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


LEARNING = {"epochs": 2, "seeds": 3, "learning_rate_scaling": "linear"}


def ablation(noise: Noise = QUIET, devices: int = 2, **fields: object) -> StudyResults:
    spec = study(
        workload={"name": "vision", "input": "real"},
        knobs={
            "batch_size": [8, 128],
            "gradient_accumulation": [1, 4],
            "gradient_compression": ["none", "fp16"],
        },
        search={"method": "ablation"},
        **fields,
    )
    plan = make_plan(spec, Resources("cpu", devices, "a CPU"))
    learning = FakeLearning(num_train=5120, spread=0.0, variance=96.0, squared_gradient=2.0)
    runner = FakeRunner(costs, noise, learning=learning)
    requests = [*(trial.request for trial in plan.trials()), *training_requests(plan)]
    return analyse(plan.study, run_all(runner, requests)[0])


def test_what_all_changes_do_to_efficiency() -> None:
    results = ablation()
    found = combined_effect(results, results.effects)
    assert found is not None
    assert found.efficiency_ratio.value == pytest.approx(4.5)


def test_what_to_change_says_what_all_changes_bring() -> None:
    said = {each.question: each.words for each in answer(ablation(training=LEARNING))}
    words = (
        "All changes together have 4.50 times the default's efficiency, with 64 times the samples in a step."
    )
    assert words in said["What to change"]


def test_without_a_certain_effect_the_answer_says_so() -> None:
    results = ablation(Noise(block=2.0))
    assert "All changes together do not change the efficiency measurably." in answer_of(results)


def test_no_other_search_asks_for_a_cure() -> None:
    found = planted({(8,): exactly(0.4), (128,): exactly(0.6)}, "batch_size")
    assert combined_effect(found, found.effects) is None
