"""The trials that a study's [training] stands for."""

from raybench.machine.resources import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from tests.unit.studies import study

REAL = {"name": "vision", "input": "real"}


def planned(devices: int = 4, **given: object) -> Plan:
    tables = {"workload": REAL, "training": {"epochs": 2, "seeds": 2}} | given
    return make_plan(study(**tables), Resources("cpu", devices, "a CPU"))


def test_the_default_is_trained_with_each_seed_on_every_world_size():
    requests = planned(knobs={"batch_size": [64, 32]}).training()
    assert [(r.config.seed, r.config.world_size, r.config.setting.strategy) for r in requests] == [
        (seed, size, "single" if size == 1 else "ddp") for seed in (0, 1) for size in (1, 2, 4)
    ]
    assert {r.role for r in requests} == {"training"}
    assert {r.config.setting.batch_size for r in requests} == {64}
    assert all(r.training.seeds == (r.config.seed,) for r in requests)


def test_one_device_is_trained_even_where_no_step_is_measured_on_it():
    requests = planned(scaling={"world_sizes": [2]}).training()
    assert [r.config.world_size for r in requests] == [1, 2, 1, 2]


def test_nothing_is_trained_without_the_table():
    assert planned(training=None).training() == []


def test_the_reference_batch_is_one_devices():
    weak = planned(knobs={"batch_size": 16, "gradient_accumulation": 2}).training()
    assert {(r.config.world_size, r.reference_batch, r.config.global_batch_size) for r in weak} == {
        (1, 32, 32), (2, 32, 64), (4, 32, 128)
    }  # fmt: skip
    strong = planned(scaling={"mode": "strong"}, knobs={"batch_size": 64}).training()
    assert {(r.reference_batch, r.config.global_batch_size) for r in strong} == {(64, 64)}
    own = planned(training={"reference_batch": 256}).training()
    assert {r.reference_batch for r in own} == {256}
