from __future__ import annotations

from dataclasses import replace

import pytest

from raybench.analysis.scaling import Fit, Status, alongside, scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from tests.support.planted import QUIET, FakeRunner, Noise, StepCosts, run_all, truth
from tests.unit.studies import asked, measured, request, study


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
    assert (found.baseline.world_size, found.baseline.strategy) == (1, "single")
    assert found.baseline.step_time_s.value == pytest.approx(0.010)
    assert found.status is Status.GOOD


def test_weak_scaling_with_noise_lies_in_the_interval() -> None:
    costs = StepCosts(plain_s=0.010, contention_s=0.001, exposed_s=0.002)
    record = measured(costs, Noise(block=0.03, preemption=0.05), world_size=4)
    found = scaling(record).efficiency
    assert found is not None
    assert found.low <= truth(costs, record.config)["efficiency"] <= found.high
    assert found.relative_half_width < 0.08


def test_strong_scaling_compares_with_the_global_batch() -> None:
    costs = StepCosts(plain_s=0.006, base_s=0.020, exposed_s=0.002)
    record = measured(costs, QUIET, world_size=4, scaling="strong", setting=Setting(batch_size=64))
    found = scaling(record)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(0.020 / 0.008)
    assert found.efficiency is not None
    assert found.efficiency.value == pytest.approx(0.020 / 0.008 / 4)
    assert found.throughput_samples_per_s.value == pytest.approx(64 / 0.008)
    # Karp and Flatt's: (1/S - 1/n) / (1 - 1/n)
    assert found.serial_fraction is not None
    assert found.serial_fraction.value == pytest.approx((1 / 2.5 - 1 / 4) / (1 - 1 / 4))
    assert found.status is Status.POOR


def test_one_device_is_its_own_baseline() -> None:
    record = measured(StepCosts(plain_s=0.01), world_size=1, setting=Setting().at(1))
    found = scaling(record)
    assert found.efficiency is not None
    assert (found.efficiency.value, found.efficiency.half_width) == (1.0, 0.0)
    assert found.status == "baseline"
    assert found.serial_fraction is None
    assert found.efficiency.n == len(record.steps.rounds if record.steps else ())


@pytest.mark.parametrize(
    ("exposed_s", "word"),
    [(0.0003, "excellent"), (0.0022, "good"), (0.008, "poor"), (0.012, "negative")],
)
def test_status_words(exposed_s: float, word: str) -> None:
    assert scaling(measured(StepCosts(plain_s=0.010, exposed_s=exposed_s), QUIET)).status == word


def test_negative_needs_an_interval_below_1() -> None:
    """A speed-up of 0.95 [0.85, 1.05] is a poor one: that it is slower than one device is not known."""
    unsure, sure = Estimate(0.95, 0.85, 1.05, 10), Estimate(0.95, 0.92, 0.98, 10)
    found = scaling(measured(StepCosts(plain_s=0.01)))
    for speedup, word in ((unsure, Status.POOR), (sure, Status.NEGATIVE)):
        assert replace(found, speedup=speedup, efficiency=speedup.scaled(0.5)).status is word


def test_without_plain_the_smallest_world_size_is_the_base() -> None:
    def costs(config: Configuration, setting: Setting) -> StepCosts:
        n = config.world_size
        return StepCosts(plain_s=0.01, exposed_s=0.001 * n, missing={"plain": "out of memory"})

    asked = [request(world_size=n) for n in (4, 2, 8)]
    records, _ = run_all(FakeRunner(costs, Noise(block=0.01)), asked)
    found = Fit(records).scaling(records[2])
    assert found.baseline is not None
    assert found.baseline.world_size == 2
    assert found.speedup is not None
    assert found.efficiency is not None
    assert found.speedup.low <= 4 * 0.012 / 0.018 <= found.speedup.high
    assert found.efficiency.value == pytest.approx(found.speedup.value / 4)
    assert found.serial_fraction is None  # which is of a speed-up over one
    smallest = Fit(records).scaling(records[1]).efficiency
    assert smallest is not None
    assert smallest.value == 1.0
    assert Fit(records[:1]).scaling(records[0]).efficiency is None


def test_other_settings_are_no_base() -> None:
    costs = StepCosts(plain_s=0.01, missing={"plain": "out of memory"})
    records = [measured(costs, world_size=n, setting=Setting(batch_size=n)) for n in (2, 4)]
    assert Fit(records).scaling(records[1]).baseline is None


def anchored(winner: Setting, default: Setting, slow: float = 1.0) -> TrialRecord:
    """A suggestion's trial with the default in its rounds, all of it ``slow`` times as long."""

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=slow * (0.010 if setting == default else 0.008), exposed_s=slow * 0.002)

    asked = request(role="search", setting=winner, variants=("plain", "ddp", "anchor"), anchor=default)
    return run_all(FakeRunner(costs, QUIET), [asked])[0][0]


def test_a_suggestion_in_a_slow_minute_is_set_right_by_its_anchor() -> None:
    """A fifth slower than a minute before, when the default took 12 ms: then it would have taken 10."""
    default, winner = Setting(), Setting(precision="bf16")
    own = measured(StepCosts(plain_s=0.010, exposed_s=0.002), QUIET, setting=default)
    suggested = anchored(winner, default, slow=1.2)
    assert scaling(suggested).step_time_s.value == pytest.approx(0.012)
    found = Fit([own, suggested]).rate_ratios([(suggested, own)])
    assert found[0].value == pytest.approx(1.2, rel=0.03)
    assert found[0].low > 1
    assert alongside(suggested, own).step_time_s.half_width < scaling(suggested).step_time_s.value
    assert alongside(suggested, None) == Fit([suggested], is_certain=True).scaling(suggested)
    # workers with other variables have an anchor of their own
    elsewhere = own.config.model_copy(update={"environment": {"A": "1"}})
    other = own.model_copy(update={"request": own.request.model_copy(update={"config": elsewhere})})
    assert alongside(suggested, other) == alongside(suggested, None)


def test_one_device_of_a_speed_up_holds_its_relations() -> None:
    for mode, size in (("weak", 2), ("strong", 4)):
        costs = StepCosts(plain_s=0.010, base_s=0.03, exposed_s=0.002)
        record = measured(
            costs, Noise(block=0.05), scaling=mode, world_size=size, setting=Setting(batch_size=64)
        )
        found = scaling(record)
        one = found.one_device
        assert one is not None
        assert found.speedup is not None
        rates = [each.throughput_samples_per_s.value for each in (found, one)]
        assert rates[0] / rates[1] == pytest.approx(found.speedup.value, rel=1e-9)


def of_a_script(args: str, step_s: dict[int, float], samples: dict[int, float]) -> list[TrialRecord]:
    """Trials of one script on so many devices, with the step time and samples of all planted for each."""
    spec = study(workload={"script": "train.py", "args": args}, scaling={"world_sizes": list(step_s)})
    runner = FakeRunner(lambda config, _: StepCosts(plain_s=step_s[config.world_size]), QUIET)
    requests = [
        asked(spec, "scaling", spec.knobs.default(), size, variants=("ddp",) if size > 1 else ("plain",))
        for size in step_s
    ]
    records = run_all(runner, requests)[0]
    return [
        each.model_copy(update={"result": each.steps.model_copy(update={"samples_per_step": samples[size]})})
        for each, size in zip(records, step_s, strict=True)
        if each.steps is not None
    ]


@pytest.mark.parametrize(
    ("step_s", "samples", "efficiency"),
    [
        ({1: 0.080, 2: 0.050}, {1: 64.0, 2: 64.0}, 0.8),  # 64 // (batch * world) micro-batches
        ({1: 0.080, 2: 0.100}, {1: 64.0, 2: 128.0}, 0.8),
        ({1: 0.080, 2: 0.050, 4: 0.040}, {1: 64.0, 2: 64.0, 4: 64.0}, 0.5),
    ],
    ids=["a fixed total", "the same on each", "on four"],
)
def test_the_efficiency_of_a_script_is_of_the_samples_that_were_counted(
    step_s: dict[int, float], samples: dict[int, float], efficiency: float
) -> None:
    records = of_a_script("--bs {batch_size}", step_s, samples)
    fit, last = Fit(records), records[-1]
    found, divided = fit.scaling(last), fit.waterfall(last)
    assert found.efficiency is not None
    assert found.efficiency.value == pytest.approx(efficiency)
    assert divided is not None
    assert divided.parts.ideal is not None
    assert divided.parts.ideal.value == pytest.approx(efficiency * step_s[last.config.world_size])
    alone = found.one_device
    assert alone is not None
    assert alone.throughput_samples_per_s.value == pytest.approx(samples[1] / step_s[1])
