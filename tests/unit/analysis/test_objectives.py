"""A trial's value for each objective, and the Pareto front."""

from __future__ import annotations

import pytest

from raybench.analysis.objectives import objective_value
from raybench.analysis.resolve import resolve
from raybench.analysis.scaling import scaling
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.spec.study import Objective
from tests.support.planted import QUIET, FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import failed, measured, request, study


def value(record: TrialRecord, objective: Objective, price: float | None = None) -> float:
    found = objective_value(record, objective, scaling(record), price)
    assert found is not None
    return found.value


def test_objectives() -> None:
    record = measured(StepCosts(plain_s=0.01, exposed_s=0.0025, memory_bytes=5 << 20), QUIET)
    assert value(record, "throughput") == pytest.approx(64 / 0.0125)
    assert value(record, "efficiency") == pytest.approx(0.8)
    assert value(record, "peak_memory") == 5 << 20
    assert value(record, "cost_per_sample") == pytest.approx(2 * 0.0125 / 64)
    assert value(record, "cost_per_sample", 3.6 / 3600) == pytest.approx(2 * 0.0125 / 64 / 1000)
    assert objective_value(failed(request()), "throughput", scaling(record)) is None


Planted = dict[int, tuple[float, int]]  # by batch: samples/s, and bytes


def front(planted: Planted, noise: Noise = QUIET, *objectives: Objective, seed: int = 1) -> list[int]:
    """The batches on the Pareto front of a study on two devices, the default the first."""
    chosen = objectives or ("throughput", "peak_memory")
    knobs, search = {"batch_size": [*planted]}, {"objectives": chosen}
    spec = study(knobs=knobs, search=search, scaling={"world_sizes": [1, 2]}, resources={"device": "cpu"})

    def model(config: Configuration, setting: Setting) -> StepCosts:
        rate, memory = planted[setting.batch_size]
        step_s = 2 * setting.batch_size / rate
        return StepCosts(plain_s=0.5 * step_s, exposed_s=0.5 * step_s, memory_bytes=memory)

    plan = make_plan(spec, Resources("cpu", 2, "a CPU", 1))
    records = run_all(FakeRunner(model, noise, seed=seed), plan.first_visits())[0]
    return [each.record.config.setting.batch_size for each in resolve(plan.study, records).chosen]


def test_pareto_front_keeps_what_nothing_beats() -> None:
    planted = {10: (10e3, 500), 20: (9e3, 300), 30: (8e3, 400), 40: (10e3, 600), 50: (9e3, 300)}
    assert front(planted) == [10, 20, 50]
    assert front(planted, QUIET, "cost_per_sample", "peak_memory") == [10, 20, 50]
    assert front(planted, QUIET, "peak_memory", "throughput", "cost_per_sample") == [10, 20, 50]


def test_memory_within_the_minimum_gain_is_equal() -> None:
    assert front({10: (10e3, 1000), 20: (9e3, 999)}) == [10]
    assert front({10: (10e3, 1000), 20: (9e3, 900)}) == [10, 20]
    assert front({10: (10e3, 1000), 20: (10e3, 999)}) == [10, 20]


def test_what_is_slower_in_the_same_rounds_is_slower_on_the_front() -> None:
    """Visits differ by more than the settings do, which each visit compares."""
    noise = Noise(block=0.01, trial=0.05, unit=0.004)
    for seed in range(4):
        assert front({10: (10e3, 1000), 20: (9.4e3, 900)}, noise, seed=seed) == [10, 20]
        assert front({10: (10e3, 1000), 20: (9.4e3, 999)}, noise, seed=seed) == [10]


def test_what_is_faster_by_luck_alone_does_not_stand_beside_what_takes_less_memory() -> None:
    noise = Noise(block=0.05, trial=0.05, unit=0.05)
    assert front({10: (10.05e3, 600), 20: (10e3, 500)}, noise) == [20]
    assert front({10: (20e3, 600), 20: (10e3, 500)}, noise) == [10, 20]


def test_efficiencies_are_compared_by_their_own_contrasts() -> None:
    """All batches have an efficiency of half: the baseline of each is as much slower as its step."""
    planted = {10: (10e3, 600), 20: (5e3, 500)}
    assert front(planted, QUIET, "efficiency", "peak_memory") == [20]
    assert front(planted, QUIET, "efficiency", "throughput") == [10]
