"""How long a study takes, before it starts: between bounds that simulated runs keep."""

from __future__ import annotations

import pytest

from raybench.commands.runs import planned as parts
from raybench.driver.forecast import BLOCK_S, FINISH_S, OWN_PROCESSES_S, START_S, estimate
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.trials import Plan
from raybench.worker.devices.cuda import CUDADevice
from raybench.worker.devices.device import Device
from tests.unit.runs import run
from tests.unit.studies import study

KNOBS = {"batch_size": [512, 32, 128], "precision": ["fp32", "bf16"]}


def planned(**fields: object) -> Plan:
    return make_plan(study(**({"knobs": KNOBS} | fields)), Resources("cpu", 2, "a CPU"))


def test_blocks_are_as_long_as_the_devices_ask_for() -> None:
    assert {"cpu": Device.block_seconds, "cuda": CUDADevice.block_seconds} == BLOCK_S


def test_suggestions_are_counted_with_their_anchor() -> None:
    plan = planned(search={"method": "optuna", "trials": 4})
    _, store, _ = run(plan)
    asked = [each.request for each in store.records if each.request.role == "search"]
    _, suggestions, _ = parts(plan)
    assert [each.variants for each in suggestions] == [each.variants for each in asked]


@pytest.mark.parametrize(
    "search", [{"method": "grid"}, {"method": "optuna", "trials": 4}], ids=["grid", "optuna"]
)
def test_a_run_takes_no_more_trials_and_time_than_that(search: dict[str, object]) -> None:
    plan = planned(search=search)
    trials = [each for part in parts(plan) for each in part]
    found = estimate(plan, trials)
    _, store, runner = run(plan)
    taken_s = sum(each.wall_time_s for each in store.records)
    assert taken_s <= found.most_s - FINISH_S - START_S[1]
    # knobs that have no effect on one device make trials of default and best one
    assert len(store.records) <= len(trials) <= len(store.records) + 6
    assert found.num_starts == runner.num_starts == 1


def test_a_trial_lasts_between_its_rounds_of_the_shortest_blocks_and_all_its_seconds() -> None:
    plan = planned(
        knobs={"batch_size": 64}, scaling={"world_sizes": [2]}, search={"method": "grid"},
        measure={"max_seconds": 14},
    )  # fmt: skip
    trials = [each for part in parts(plan) for each in part]
    found, least, most = estimate(plan, trials), START_S[0] + FINISH_S, START_S[1] + FINISH_S
    assert len(trials) == 3  # visits, each with all five variants in its share of ten rounds
    assert found.least_s - least == pytest.approx(3 * (0.5 + 4 * 5 * 0.15))
    assert found.most_s - most == pytest.approx(3 * 14 / 0.7)


def test_starts_and_processes_count() -> None:
    twice = planned(measure={"starts": 2}, environment={"A": ["0", "1"]}, search={"method": "grid"})
    assert estimate(twice, ()).num_starts == 2 + 2 * 2
    plan = planned(search={"method": "grid"})
    trials = [each for part in parts(plan) for each in part]
    own, plain = (estimate(plan, trials, own_processes=each) for each in (True, False))
    assert own.least_s - plain.least_s == pytest.approx(len(trials) * OWN_PROCESSES_S[0])
