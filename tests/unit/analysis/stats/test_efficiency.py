from __future__ import annotations

import math

import pytest
from raybench.analysis.stats.efficiency import gain, step_time, throughput

from raybench.analysis.scaling import Status, scaling, status
from raybench.analysis.stats.statistics import Estimate, num_trimmed, t_quantile
from raybench.analysis.stats.verdict import Verdict
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from tests.support.planted import (
    QUIET,
    FakeRunner,
    Noise,
    StepCosts,
    run_all,
    truth,
)
from tests.unit.studies import failed, measured, request


def test_weak_scaling_without_noise_is_exact() -> None:
    record = measured(StepCosts(plain_s=0.010, exposed_s=0.0025), QUIET, setting=Setting(batch_size=64))
    found = scaling(record)
    assert found.step_time_s.value == pytest.approx(0.0125)
    assert found.throughput_samples_per_s.value == pytest.approx(2 * 64 / 0.0125)
    assert found.efficiency is not None
    assert found.efficiency.value == pytest.approx(0.8)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(1.6)
    assert found.baseline is not None
    assert (found.baseline.world_size, found.baseline.strategy, found.baseline.paired) == (1, "single", True)
    assert found.baseline.step_time_s.value == pytest.approx(0.010)
    assert found.status is Status.GOOD


def test_weak_scaling_with_noise_lies_in_the_interval() -> None:
    costs = StepCosts(plain_s=0.010, contention_s=0.001, exposed_s=0.002)
    record = measured(costs, Noise(block=0.03, preemption=0.05), world_size=4)
    found = scaling(record).efficiency
    assert found is not None
    assert found.low <= truth(costs, record.config)["efficiency"] <= found.high
    assert found.relative_half_width < 0.03


def test_strong_scaling_compares_with_the_global_batch() -> None:
    costs = StepCosts(plain_s=0.006, base_s=0.020, exposed_s=0.002)
    record = measured(costs, QUIET, world_size=4, scaling="strong", setting=Setting(batch_size=64))
    found = scaling(record)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(0.020 / 0.008)
    assert found.efficiency is not None
    assert found.efficiency.value == pytest.approx(0.020 / 0.008 / 4)
    assert found.throughput_samples_per_s.value == pytest.approx(64 / 0.008)
    assert found.status is Status.POOR


def test_one_device_is_its_own_baseline() -> None:
    record = measured(StepCosts(plain_s=0.01), world_size=1, setting=Setting().at(1))
    found = scaling(record)
    assert found.efficiency is not None
    assert (found.efficiency.value, found.efficiency.half_width) == (1.0, 0.0)
    assert found.efficiency.n == len(record.steps.rounds if record.steps else ())


@pytest.mark.parametrize(
    ("exposed_s", "word"),
    [(0.001, "excellent"), (0.003, "good"), (0.008, "poor"), (0.012, "negative")],
)
def test_status_words(exposed_s: float, word: str) -> None:
    assert scaling(measured(StepCosts(plain_s=0.010, exposed_s=exposed_s), QUIET)).status == word


def test_negative_needs_an_interval_below_1() -> None:
    """A speed-up of 0.95 [0.85, 1.05] is a poor one: that it is slower than one device is not known."""
    unsure, sure = Estimate(0.95, 0.85, 1.05, 10), Estimate(0.95, 0.92, 0.98, 10)
    assert status(unsure, unsure.scaled(0.5)) is Status.POOR
    assert status(sure, sure.scaled(0.5)) is Status.NEGATIVE


def test_without_plain_the_smallest_world_size_is_the_base() -> None:
    def costs(config: Configuration, setting: Setting) -> StepCosts:
        n = config.world_size
        return StepCosts(plain_s=0.01, exposed_s=0.001 * n, missing={"plain": "out of memory"})

    asked = [request(world_size=n) for n in (4, 2, 8)]
    records, _ = run_all(FakeRunner(costs, Noise(block=0.01)), asked)
    found = scaling(records[2], records)
    assert found.baseline is not None
    assert (found.baseline.world_size, found.baseline.paired) == (2, False)
    assert found.speedup is not None
    assert found.efficiency is not None
    assert found.speedup.low <= 4 * 0.012 / 0.018 <= found.speedup.high
    assert found.efficiency.value == pytest.approx(found.speedup.value / 4)
    smallest = scaling(records[1], records).efficiency
    assert smallest is not None
    assert smallest.value == 1.0
    assert scaling(records[0], records[:1]).efficiency is None


def test_other_settings_are_no_base() -> None:
    costs = StepCosts(plain_s=0.01, missing={"plain": "out of memory"})
    records = [measured(costs, world_size=n, setting=Setting(batch_size=n)) for n in (2, 4)]
    assert scaling(records[1], records).baseline is None


def test_a_trial_that_failed_has_no_numbers() -> None:
    for function in (step_time, throughput, scaling):
        with pytest.raises(ValueError, match="oom"):
            function(failed(request()))


@pytest.mark.parametrize(
    ("planted", "verdict"), [(0.14, "better"), (-0.1, "worse"), (0.0, "no significant gain")]
)
def test_gain_is_found_with_its_verdict(planted: float, verdict: str) -> None:
    default = Setting()

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.01 * (1 if setting == default else 1 / (1 + planted)))

    asked = request(
        role="confirmation", setting=Setting(precision="bf16"), anchor=default, variants=("ddp", "anchor")
    )
    record = run_all(FakeRunner(costs, seed=4), [asked])[0][0]
    found = gain(record, 0.02)
    assert found.gain.low <= planted <= found.gain.high
    assert found.verdict == verdict


def test_gain_counts_samples_not_steps() -> None:
    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.001 * setting.batch_size)

    asked = request(
        role="confirmation",
        setting=Setting(batch_size=64),
        anchor=Setting(batch_size=32),
        variants=("ddp", "anchor"),
    )
    found = gain(run_all(FakeRunner(costs, QUIET), [asked])[0][0], 0.02)
    assert found.gain.value == pytest.approx(0.0)
    assert found.verdict is Verdict.NONE


def test_a_small_certain_gain_is_not_significant() -> None:
    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.010 if setting.precision == "fp32" else 0.0099)

    asked = request(
        role="confirmation",
        setting=Setting(precision="bf16"),
        anchor=Setting(),
        variants=("ddp", "anchor"),
    )
    record = run_all(FakeRunner(costs, QUIET), [asked])[0][0]
    assert gain(record, 0.02).verdict is Verdict.NONE
    assert gain(record, 0.005).verdict is Verdict.BETTER


def test_gains_of_several_winners_hold_at_once() -> None:
    """One of four: Student's t at the level 0.95 to the power of a quarter."""
    record = measured(
        StepCosts(plain_s=0.01), role="confirmation", anchor=Setting(), variants=("ddp", "anchor")
    )
    alone, one_of_four = gain(record, 0.02).gain, gain(record, 0.02, among=4).gain
    degrees = alone.n - 2 * num_trimmed(alone.n) - 1
    wider = t_quantile(degrees, 0.95**0.25) / t_quantile(degrees)
    assert one_of_four.value == alone.value
    assert math.log1p(one_of_four.high) - math.log1p(one_of_four.value) == pytest.approx(
        wider * (math.log1p(alone.high) - math.log1p(alone.value))
    )


def test_gain_of_another_trial_is_refused() -> None:
    with pytest.raises(ValueError, match="no confirmation"):
        gain(measured(StepCosts(plain_s=0.01)), 0.02)
