"""The fake runner: its public names, and that it measures as the worker does."""

from __future__ import annotations

import pytest

import tests.support.planted
from raybench.analysis.scaling import scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.records.requests import TrainingRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, TrainingSpec
from tests.support.planted import QUIET, FakeHardware, FakeLearning, FakeRunner, Noise, run_all
from tests.unit.studies import config, request

REAL = {"name": "vision", "input": "real"}


def test_the_public_names_are_sorted_and_there() -> None:
    names = tests.support.planted.__all__
    constants = [name for name in names if name.isupper()]
    classes = [name for name in names if name[0].isupper() and not name.isupper()]
    functions = [name for name in names if name[0].islower()]
    assert names == [*sorted(constants), *sorted(classes), *sorted(functions)]
    assert all(hasattr(tests.support.planted, name) for name in names)


def test_the_fake_hardware_shows_both_regimes() -> None:
    runner = FakeRunner(FakeHardware().costs, QUIET)
    found = {}
    for batch in (16, 1024):
        record = run_all(runner, [request(setting=Setting(batch_size=batch))])[0][0]
        found[batch] = scaling(record).efficiency
    assert isinstance(found[16], Estimate)
    assert isinstance(found[1024], Estimate)
    assert found[16].value < 0.5 < 0.75 < found[1024].value


def test_the_clock_is_simulated_and_the_stopping_rule_is_the_workers() -> None:
    """Noise that no time is enough for: the rounds end with the time, after twice of it at the latest."""
    wild = Noise(block=1.0)
    asked = request(measure=MeasureSpec(half_width=0.01, max_seconds=5))
    (record,) = run_all(FakeRunner(noise=wild, seed=1), [asked])[0]
    assert record.steps is not None
    assert record.steps.stopped_by == "max_seconds"
    assert record.steps.measure_s >= 5
    few = request(measure=MeasureSpec(half_width=0.01, max_seconds=0.5, min_rounds=1000))
    (record,) = run_all(FakeRunner(noise=QUIET), [few])[0]
    assert record.steps is not None
    assert record.steps.stopped_by == "max_seconds"
    assert 3 <= len(record.steps.rounds) < 1000
    assert record.steps.measure_s >= 1.0


@pytest.mark.parametrize(("workload", "samples"), [(REAL, 640), ({"name": "vision"}, None)])
def test_real_input_tells_an_epochs_samples(workload: dict[str, str], samples: int | None) -> None:
    runner = FakeRunner(learning=FakeLearning(num_train=640))
    (record,) = run_all(runner, [request(workload=workload)])[0]
    assert record.steps is not None
    assert record.steps.epoch_samples == samples


def test_training_sees_every_sample_once_an_epoch() -> None:
    asked = TrainingRequest(config=config(workload=REAL, world_size=3), training=TrainingSpec(epochs=2))
    (record,) = run_all(FakeRunner(learning=FakeLearning(num_train=641)), [asked])[0]
    assert record.training is not None
    assert [epoch.samples for epoch in record.training.epochs] == [(214, 214, 213)] * 2


def test_the_truth_is_what_a_quiet_measurement_finds() -> None:
    runner = FakeRunner(FakeHardware(offset_s=(0.0, 0.001)).costs, QUIET)
    asked = request(setting=Setting(batch_size=64))
    (record,) = run_all(runner, [asked])[0]
    found = scaling(record)
    assert found.step_time_s.value == pytest.approx(runner.truth(asked.config)["step_time_s"])
    assert found.efficiency is not None
    assert found.efficiency.value == pytest.approx(runner.truth(asked.config)["efficiency"], rel=1e-3)
