"""What was measured here beside what was published: each figure with its like."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from raybench.analysis import analyse
from raybench.analysis.published_pairs import Pair, pairs, published_experiment
from raybench.analysis.published_values import BY_STEPS_AND_RESTARTS
from raybench.analysis.results import StudyResults
from raybench.analysis.training import TrainedRun
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.training import training_requests
from raybench.records.requests import Configuration
from raybench.spec import Setting, Study
from tests.support.planted import QUIET, FakeLearning, FakeRunner, StepCosts, run_all
from tests.unit.studies import cured_study, grid, study

STEP_S = {256: 0.01, 4096: 0.08}  # of one device


def costs(config: Configuration, setting: Setting) -> StepCosts:
    return StepCosts(plain_s=STEP_S[setting.batch_size], exposed_s=0.02)


def measured(spec: Study, sizes: tuple[int, ...] = (1, 2)) -> StudyResults:
    return analyse(spec, grid(spec, sizes, FakeRunner(costs, QUIET))[0])


def beside(found: tuple[Pair, ...], quantity: str, size: int, batch: int | None) -> Pair:
    return next(
        pair
        for pair in found
        if (pair.figure.quantity, pair.figure.world_size, pair.figure.batch_size) == (quantity, size, batch)
    )


def paired(results: StudyResults, **fields: Any) -> tuple[Pair, ...]:
    """The pairs of AG News with its figures of any batch; ``fields`` in place of the results' own."""
    experiment = published_experiment("distilbert_ag_news")
    assert experiment is not None
    figures = tuple(replace(figure, batch_size=None) for figure in experiment.figures)
    summaries = fields.get("summaries", results.summaries)
    return pairs(
        results,
        replace(experiment, figures=figures),
        summaries,
        results.training,
        results.overlaps.shown,
    )


@pytest.fixture(scope="module")
def mlp() -> StudyResults:
    return measured(study(name="mlp_scaling", knobs={"batch_size": [256, 4096]}))


def test_a_study_of_ones_own_repeats_no_experiment() -> None:
    results = measured(study(name="mine", knobs={"batch_size": [256]}))
    assert results.experiment is None
    assert results.published == ()


def test_measured_figures_stand_beside_published_ones_in_their_unit(mlp: StudyResults) -> None:
    found = mlp.published
    step = beside(found, "step_time", 2, 256)
    assert step.figure.words == "41.40 ms"
    assert step.measured is not None
    assert step.measured.value == pytest.approx(30.0)
    assert step.measured.low is not None
    assert step.measured.n == 10
    one = beside(found, "throughput", 1, 4096).measured
    assert one is not None
    assert one.value == pytest.approx(4096 / 0.08)
    speedup, efficiency = (beside(found, name, 2, 4096).measured for name in ("speedup", "efficiency"))
    assert speedup is not None
    assert efficiency is not None
    assert speedup.value == pytest.approx(1.6)
    assert efficiency.value == pytest.approx(80)
    assert beside(found, "speedup", 2, 256).measured is not None


def test_what_was_not_measured_has_nothing_beside_it() -> None:
    results = measured(study(name="mlp_scaling", knobs={"batch_size": [256]}), (2,))
    found = results.published
    assert beside(found, "throughput", 2, 4096).measured is None
    one = beside(found, "throughput", 1, 256).measured  # in the rounds of the trial on two
    assert one is not None
    assert one.value == pytest.approx(25_600)


def test_epoch_times_come_from_steps_without_training() -> None:
    spec = study(name="distilbert_ag_news", knobs={"batch_size": [256]})
    results = measured(spec)
    epoch = beside(paired(results), "epoch_time", 1, None).measured
    assert epoch is not None
    assert epoch.value == pytest.approx(120_000 / 25_600)
    assert epoch.derived
    found = paired(results)
    assert all(pair.measured is None for pair in found if pair.figure.epoch is not None)


def test_what_several_seeds_trained_is_their_mean_with_its_interval() -> None:
    spec = study(
        name="distilbert_ag_news",
        workload={"name": "vision", "input": "real", "samples": 640},
        knobs={"batch_size": 32},
        training={"epochs": 3, "seeds": 3},
    )
    results = _trained(spec)
    runs = [TrainedRun(r) for r in results.records if r.training and r.config.world_size == 2]
    assert len(runs) == 3
    found = {(p.figure.quantity, p.figure.epoch): p.measured for p in results.published if _on_two(p)}
    means = {
        ("accuracy", None): [100 * (run.final_accuracy or 0) for run in runs],
        ("accuracy", 2): [100 * (run.epochs[1].test_accuracy or 0) for run in runs],
        ("train_loss", 3): [run.epochs[2].train_loss for run in runs],
        ("total_time", None): [run.total_s for run in runs],  # with its evaluations
    }
    for key, values in means.items():
        measured_ = found[key]
        assert measured_ is not None, key
        assert measured_.value == pytest.approx(fmean(values)), key
        assert (measured_.n, measured_.derived) == (3, ""), key
    accuracy = found["accuracy", None]
    assert accuracy is not None
    assert accuracy.low is not None
    assert accuracy.low < accuracy.value


def _on_two(pair: Pair) -> bool:
    return pair.figure.world_size == 2


def test_an_epoch_is_of_the_samples_that_there_are_here() -> None:
    """Beside what training trials of the same study took: not of another number of samples and epochs."""
    spec = study(
        name="distilbert_ag_news",
        workload={"name": "vision", "input": "real", "samples": 1_000},
        knobs={"batch_size": [256]},
        training={"epochs": 2},
    )
    found = paired(measured(spec))
    epoch, total = (beside(found, name, 1, None).measured for name in ("epoch_time", "total_time"))
    assert epoch is not None
    assert total is not None
    assert epoch.value == pytest.approx(1_000 / 25_600)
    assert total.value == pytest.approx(2 * 1_000 / 25_600)


def test_an_epoch_from_steps_has_a_restart_of_the_loader_where_it_was_measured() -> None:
    spec = study(
        name="distilbert_ag_news",
        workload={"name": "vision", "input": "real", "samples": 1_000},
        knobs={"batch_size": [256]},
        training={"epochs": 2},
    )

    def restarting(config: Configuration, setting: Setting) -> StepCosts:
        return replace(costs(config, setting), restart_s=3.0)

    results = analyse(spec, grid(spec, (1, 2), FakeRunner(restarting, QUIET))[0])
    found = {name: beside(paired(results), name, 1, None).measured for name in ("epoch_time", "total_time")}
    assert {name: each.value for name, each in found.items() if each} == pytest.approx(
        {"epoch_time": 1_000 / 25_600 + 3, "total_time": 2 * (1_000 / 25_600 + 3)}
    )
    assert {each.derived for each in found.values() if each} == {BY_STEPS_AND_RESTARTS}


def test_batches_that_were_not_published_stand_beside_the_largest_published_one() -> None:
    results = measured(study(name="resnet50_cifar10", knobs={"batch_size": [4096, 256]}))
    speedup = beside(results.published, "speedup", 2, 64).measured
    assert speedup is not None
    assert speedup.batch_size == 4096


def test_what_a_training_learned_stands_beside_the_published_epochs() -> None:
    spec = study(
        name="distilbert_ag_news",
        workload={"name": "vision", "input": "real", "samples": 640},
        knobs={"batch_size": 32},
        training={"epochs": 2},
    )
    results = _trained(spec)
    beside_ = {
        (p.figure.quantity, p.figure.of, p.figure.epoch): p.measured
        for p in results.published
        if p.figure.world_size == 2
    }
    (trained,) = [r.training for r in results.records if r.training and r.config.world_size == 2]
    for number, epoch in enumerate(trained.epochs, start=1):
        learned = {
            "accuracy": 100 * (epoch.test_accuracy or 0),
            "train_loss": epoch.train_loss,
            "epoch_time": epoch.train_s,
        }
        for quantity, value in learned.items():
            found = beside_[quantity, "", number]
            assert found is not None
            assert found.value == pytest.approx(value)
    assert beside_["accuracy", "", 3] is None  # only two epochs were trained
    assert results.training is not None
    (comparison,) = results.training.comparisons
    speedup = beside_["speedup", "total_time", None]
    assert speedup is not None
    assert comparison.total_speedup is not None
    assert speedup.value == pytest.approx(comparison.total_speedup.value)


@pytest.mark.parametrize(("devices", "batch"), [(4, 32), (2, 64)])
def test_the_epoch_time_of_the_cure_is_that_of_its_training(devices: int, batch: int) -> None:
    """Ten steps of 512 in 85 ms each, all changes together; not the default's 160 steps."""
    results = cured_study("transformer_ag_news_tuned", devices)
    found = beside(results.published, "epoch_time", 4, 32).measured
    assert found is not None
    assert found.value == pytest.approx(10 * 0.085)
    assert (found.world_size, found.batch_size, found.derived) == (devices, batch, "")


def test_other_world_sizes_stand_beside_the_smallest_published_one() -> None:
    results = measured(study(name="transformer_imdb", knobs={"batch_size": [4096]}))
    measured_ = beside(results.published, "speedup", 4, None).measured
    assert measured_ is not None
    assert measured_.world_size == 2


def test_phases_of_an_epoch_energy_and_the_time_saved_have_their_partner() -> None:
    """1,000 samples an epoch, ten epochs; steps of 4,096 in 80 ms alone, of 8,192 in 100 ms on two."""
    spec = study(
        name="resnet50_cifar10",
        workload={"name": "vision", "input": "real"},
        knobs={"batch_size": [4096]},
    )
    runner = FakeRunner(costs, QUIET, learning=FakeLearning(num_train=1000))
    records = grid(spec, (1, 2), runner)[0]
    joules = {1: 2.0, 2: 5.0}  # of a step of all devices
    metered = [
        record.model_copy(
            update={
                "result": record.steps.model_copy(update={"energy_joules": joules[record.config.world_size]})
            }
        )
        for record in records
        if record.steps
    ]
    found = {
        (p.figure.quantity, p.figure.of, p.figure.world_size): p.measured
        for p in analyse(spec, metered).published
    }
    per_epoch = 1000 / 8192
    expected = {
        ("phase_time", "forward", 1): 0.3 * 2 * 0.08 * per_epoch,
        ("phase_time", "forward", 2): 0.3 * 0.08 * per_epoch,
        ("phase_time", "gradient synchronization", 2): 0.02 * per_epoch,
        ("energy_ratio", "", 2): (5.0 / 8192) / (2.0 / 4096),
        ("time_saved", "", 2): 10 * 0.1 * per_epoch * 0.6 / 60,
        ("time_saved_in_runs", "", 2): 10 * 10 * 0.1 * per_epoch * 0.6 / 3600,
        ("overhead_fraction", "", 2): 20.0,  # %, of 100 ms those that are not one device's 80
    }
    for key, value in expected.items():
        measured_ = found[key]
        assert measured_ is not None, key
        assert measured_.value == pytest.approx(value, rel=1e-6), key
        assert measured_.world_size == key[2]


def test_what_has_no_partner_says_why() -> None:
    plain = {
        (p.figure.quantity, p.figure.of, p.figure.world_size): p
        for p in measured(study(name="resnet50_cifar10", knobs={"batch_size": [4096]})).published
    }
    reasons = {
        ("accuracy", "", 2): "no model was trained",
        ("phase_time", "forward", 2): "the samples of an epoch are not known",
        ("energy_ratio", "", 2): "energy was not told for one device and for several",
        ("time_saved", "", 2): "the samples of an epoch are not known",
        ("speedup", "", 16): "no trial on 16 devices",
        ("epochs", "", None): "",
    }
    for key, why in reasons.items():
        assert (plain[key].measured, plain[key].why_not) == (None, why), key
    unexplained = [
        pair.figure
        for pair in plain.values()
        if pair.measured is None
        and not pair.why_not
        and pair.figure.origin != "chosen"
        and pair.figure.world_size is not None
    ]
    assert unexplained == []


def test_a_loss_and_the_time_saved_come_from_training_where_there_is_some() -> None:
    learned = study(
        name="distilbert_ag_news",
        workload={"name": "vision", "input": "real", "samples": 640},
        knobs={"batch_size": 32},
        training={"epochs": 2},
    )
    results = _trained(learned)
    loss = beside(results.published, "loss", 2, 32).measured
    (trained,) = [r.training for r in results.records if r.training and r.config.world_size == 2]
    assert loss is not None
    assert loss.value == pytest.approx(trained.epochs[-1].train_loss)
    results = _trained(learned.model_copy(update={"name": "resnet50_cifar10"}))
    saved = beside(results.published, "time_saved", 2, 64).measured
    one, two = (
        TrainedRun(r).total_s
        for r in sorted(results.records, key=lambda r: r.config.world_size)
        if r.training
    )
    assert saved is not None
    assert saved.value == pytest.approx((one - two) / 60)


def _trained(spec: Study) -> StudyResults:
    """Steps and training on one device and two."""
    plan = make_plan(spec, Resources("cpu", 2, "a CPU"))
    runner = FakeRunner(noise=QUIET, learning=FakeLearning())
    requests = [*(trial.request for trial in plan.trials()), *training_requests(plan)]
    return analyse(spec, run_all(runner, requests)[0])
