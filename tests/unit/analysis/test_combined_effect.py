"""What all changes of an ablation bring, each one's share, what their batch does: planted, found again."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace

import pytest

from raybench.analysis import analyse
from raybench.analysis.results import StudyResults
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.training import training_requests
from raybench.records.requests import Configuration
from raybench.report.advice import combined_words
from raybench.report.answer import answer, answer_of
from raybench.report.sections.configurations import attribution_table
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


def test_each_share_of_the_cure_is_found() -> None:
    found = ablation().combined_effect
    assert found is not None
    assert found.together.efficiency_ratio.value == pytest.approx(4.5)
    shares = {next(iter(each.effect.changes)): each.share.value for each in found.shares}
    assert shares == {
        "batch_size": pytest.approx(math.log(2) / math.log(4.5)),
        "gradient_accumulation": pytest.approx(math.log(1.5) / math.log(4.5)),
        "gradient_compression": pytest.approx(math.log(0.9) / math.log(4.5)),  # takes something back
    }
    assert [each.share.value for each in found.shares] == sorted(shares.values(), reverse=True)
    assert found.rest is not None
    assert found.rest.value + sum(shares.values()) == pytest.approx(1.0)


def test_what_the_larger_batch_does_to_samples_and_to_learning() -> None:
    found = ablation(training=LEARNING).combined_effect
    assert found is not None
    assert found.batch_ratio == 64  # 16 in a pass, 4 passes in a step
    assert found.goodput_ratio is not None
    rate = found.together.throughput_ratio.value
    useful = (48 + 16) / (48 + 16 * 64)  # (scale + the default's batch) / (scale + batch)
    assert found.goodput_ratio.value == pytest.approx(rate * useful)
    assert found.trained is not None
    assert found.trained.num_seeds == 3


def test_what_was_trained_is_told_of_as_many_devices_as_the_cure() -> None:
    results = ablation(devices=4, training=LEARNING)
    assert results.combined_effect is not None
    assert results.combined_effect.trained is not None
    assert (
        results.combined_effect.trained.group.world_size
        == results.combined_effect.together.record.config.world_size
        == 4
    )
    assert results.training is not None
    told = {each.record.trial_id: each.throughput_samples_per_s for each in results.training.goodput}
    assert told
    for name, rate in told.items():
        assert results.scalings[name].throughput_samples_per_s == rate


def test_the_answer_begins_with_the_cure() -> None:
    box = answer(ablation(training=LEARNING))
    assert [each.question for each in box[:2]] == ["All changes together", "Scaling"]
    assert "times the efficiency on 2 devices, from 0.40x to 1.80x as fast as one." in box[0].words
    assert "A step then has 64 times the samples: accuracy changes by " in box[0].words


def test_its_shares_and_what_its_batch_does_stand_below_the_table_of_effects() -> None:
    caption = attribution_table(ablation(training=LEARNING)).caption
    assert "shares of it: 46% [" in caption
    assert "fp16 compression takes back 7%" in caption  # no share is below 0
    assert "A step has 64 times the samples" in caption
    assert "the goodput (useful samples/s)" in caption
    assert "points of accuracy after 2 epochs (3 seeds, 10,000 test samples)" in caption
    assert len(textwrap.wrap(answer_of(ablation(training=LEARNING)), 80)) <= 16


def test_changes_that_overlap_bring_less_together() -> None:
    found = ablation().combined_effect
    assert found is not None
    assert found.rest is not None
    overlapping = replace(found, rest=found.rest.scaled(-1))
    assert "less 34% [" in combined_words(overlapping)


def test_without_a_certain_effect_there_is_nothing_to_share() -> None:
    results = ablation(Noise(block=2.0))
    assert results.combined_effect is not None
    assert (results.combined_effect.shares, results.combined_effect.rest) == ((), None)
    assert "no certain change of the efficiency" in answer(results)[0].words
    caption = attribution_table(results).caption
    assert "no certain difference, so there is nothing to share out; each alone: " in caption


def test_no_other_search_asks_for_a_cure() -> None:
    assert planted({(8,): exactly(0.4), (128,): exactly(0.6)}, "batch_size").combined_effect is None


def test_with_an_unscaled_learning_rate_the_useful_samples_are_not_known() -> None:
    found = ablation(training={"epochs": 2, "seeds": 3}).combined_effect
    assert found is not None
    assert found.goodput_ratio is None
    assert found.trained is not None
