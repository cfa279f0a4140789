"""Device time, money and energy on one device and on several."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from raybench.analysis.cost import RUNS, _saved, costs, run_of
from raybench.analysis.scaling import scaling
from raybench.analysis.stats.statistics import NORMAL_95, Estimate, of_log, stdev
from raybench.spec.study import MeasureSpec
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeLearning, FakeRunner
from tests.unit.studies import SIXTEEN_TENTHS, grid, measured, metered, planted, slowed, study, trained

REAL = {"name": "vision", "input": "real"}


def test_costs_of_one_and_two_devices() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size", cost={"price_per_device_hour": 1.5})
    one, two = costs(found, run_of(50_000, 10), None)
    assert one.cost.device_s.value == pytest.approx(500_000 / 3200)
    assert two.cost.time_s.value == pytest.approx(500_000 / 5120)
    assert two.cost.device_s.value == pytest.approx(2 * 500_000 / 5120)
    assert two.cost.money is not None
    assert two.cost.money.value == pytest.approx(2 * 500_000 / 5120 / 3600 * 1.5)
    assert two.device_time_ratio is not None
    assert two.device_time_ratio.value == pytest.approx(1.25)
    assert two.saved_s is not None
    assert two.saved_s.value == pytest.approx(10 * (500_000 / 3200 - 500_000 / 5120))
    assert two.saved_money is not None
    assert two.saved_money.value == pytest.approx(10 * 1.5 / 3600 * (500_000 / 3200 - 2 * 500_000 / 5120))
    assert one.device_time_ratio is one.saved_s is None


def test_energy_is_that_of_the_counters() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size")
    again = analyse(found.study, metered(found.records, 6.4))
    energies = [point.cost.energy_joules for point in costs(again, run_of(), None)]
    assert energies == [pytest.approx(6.4 * 1e6 / 32), pytest.approx(6.4 * 1e6 / 64)]


@pytest.mark.parametrize("records", ["steps and training", "steps alone"])
def test_a_study_of_ones_own_that_trains_has_an_epoch_and_a_run(records: str) -> None:
    """Their samples come from the records, of real input; the epochs from the study."""
    spec = study(workload=REAL, knobs={"batch_size": [32]}, training={"epochs": 7})
    measured, _ = grid(spec, (1, 2), FakeRunner(noise=QUIET, learning=FakeLearning(num_train=5_000)))
    if records == "steps and training":
        measured += trained(spec, (1, 2), FakeLearning(num_train=5_000))
    found = analyse(spec, measured)
    assert found.epoch_samples == 5_000
    assert (found.run.epochs, found.run.samples) == (7, 35_000)
    one, two = found.costs
    for point in (one, two):
        assert point.is_trained == (records == "steps and training")
        rate = found.scaling(point.at.record).throughput_samples_per_s.value
        if not point.is_trained:
            assert point.cost.time_s.value == pytest.approx(35e3 / rate)
    assert found.phases is not None


@pytest.mark.parametrize("sizes", [(1,), (1, 4)])
def test_what_is_saved_is_said_of_figures_of_one_kind(sizes: tuple[int, ...]) -> None:
    """As 811 ms trained on one device and 858 ms by steps on two "saved" what steps say of both."""
    spec = study(workload=REAL, knobs={"batch_size": [32]}, training={"epochs": 3, "seeds": 3})
    measured, _ = grid(spec, (1, 2, 4), FakeRunner(noise=QUIET))
    found = analyse(spec, [*measured, *trained(spec, sizes)])
    one, two, four = found.costs
    assert [each.is_trained for each in (one, two, four)] == [4 in sizes, False, 4 in sizes]
    for point in (two, four):
        if point.saved_s is not None:
            runs_s = 10 * (one.cost.time_s.value - point.cost.time_s.value)
            assert point.saved_s.value == pytest.approx(runs_s, rel=0.02)
    assert (two.saved_s is None) == (4 in sizes)
    assert four.saved_s is not None


def test_training_alone_tells_an_epochs_samples() -> None:
    spec = study(workload=REAL, training={"epochs": 2})
    found = analyse(spec, trained(spec, (1, 2), FakeLearning(num_train=1_001)))
    assert found.epoch_samples == 1_001
    assert found.costs == ()


def test_real_input_without_training_has_an_epoch_but_no_run() -> None:
    spec = study(workload=REAL, knobs={"batch_size": [32]})
    found = analyse(spec, grid(spec, (1, 2))[0])
    assert (found.epoch_samples, found.run.epochs, found.run.samples) == (1_000, 0, 1e6)
    several = found.costs[-1]
    assert several.speedup is not None
    assert several.saved_s is not None
    saved_s = several.cost.time_s.value * (several.speedup.value - 1) * RUNS
    assert several.saved_s.value == pytest.approx(saved_s)


def test_synthetic_input_has_no_epoch_unless_the_study_says_its_samples() -> None:
    for workload, samples in (({"name": "vision"}, None), ({"name": "vision", "samples": 640}, 640)):
        spec = study(workload=workload, knobs={"batch_size": [32]})
        assert analyse(spec, grid(spec, (1, 2))[0]).epoch_samples == samples


def test_the_samples_of_a_record_count_before_what_the_study_asks() -> None:
    """A data set may have fewer."""
    spec = study(workload={**REAL, "samples": 100_000}, knobs={"batch_size": [32]})
    found = analyse(spec, grid(spec, (1, 2))[0])
    assert found.epoch_samples == 1_000


def test_a_mean_step_holds_the_slow_rounds_that_the_typical_one_trims() -> None:
    """Two of forty blocks take twice as long: 5% more."""
    record = slowed(measured(SIXTEEN_TENTHS, QUIET, measure=MeasureSpec(steps=10, min_rounds=40)), (7, 23))
    found = scaling(record)
    assert found.step_time_s.value == pytest.approx(0.0125)
    assert found.mean_step_s.value == pytest.approx(0.0125 * 1.05)
    times_s = [0.0125] * 38 + [0.025] * 2
    error = stdev(times_s) / 40**0.5 / found.mean_step_s.value  # of the slow rounds, beside the typical one's
    assert found.mean_step_s.log_half_width > math.hypot(1.96 * error, 0.9 * found.step_time_s.log_half_width)
    assert (found.mean_step_s.n, found.mean_step_s.starts) == (40, 1)


def test_costs_are_of_mean_steps_and_agree_with_what_is_saved() -> None:
    """One device has no slow steps, two have: their speed-up by mean steps is less than the typical 1.6."""
    spec = study(knobs={"batch_size": [32]})
    one, two = grid(spec, (1, 2), FakeRunner(lambda config, setting: SIXTEEN_TENTHS, QUIET))[0]
    assert two.steps is not None
    slow = len(two.steps.rounds) // 10
    assert slow * 10 == len(two.steps.rounds)
    found = analyse(spec, [one, slowed(two, range(slow), 2.0, "ddp")])
    one, two = found.costs
    typical = found.scaling(two.at.record)
    assert typical.speedup is not None
    assert two.speedup is not None
    assert (typical.speedup.value, two.speedup.value) == pytest.approx((1.6, 1.6 / 1.1))
    one_s, two_s = one.cost.time_s.value, two.cost.time_s.value
    assert one_s / two_s == pytest.approx(two.speedup.value)
    assert two.device_time_ratio is not None
    assert two.device_time_ratio.value == pytest.approx(2 * two_s / one_s)
    assert two.saved_s is not None
    assert two.saved_s.value == pytest.approx(RUNS * (one_s - two_s))
    rows = [(row.step_time_s, row.mean_step_time_s) for row in found.summaries]
    assert rows == [pytest.approx((0.01, 0.01)), pytest.approx((0.0125, 0.0125 * 1.1))]


def test_what_is_saved_varies_with_the_time_and_the_speed_up_together() -> None:
    """Against draws: one device's level and that of several, which have a part in common."""
    random = np.random.default_rng(1)
    common, own, ones = random.standard_normal((3, 200_000)) * np.array([[0.03], [0.01], [0.02]])
    many, one = 100 * np.exp(common + own), 160 * np.exp(common + ones)

    def estimate(draws: NDArray[np.float64]) -> Estimate:
        return of_log(float(np.log(draws).mean()), NORMAL_95 * float(np.log(draws).std()), 10, 1)

    for price_ratio in (1.0, 2.0):
        found = _saved(estimate(many), estimate(one / many), estimate(one), price_ratio)
        truth = one - price_ratio * many
        assert found.value == pytest.approx(float(truth.mean()), rel=0.02)
        assert found.half_width == pytest.approx(NORMAL_95 * float(truth.std()), rel=0.03)
