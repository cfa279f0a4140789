"""The trials that a study's [training] stands for."""

from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from tests.unit.studies import study

REAL = {"name": "vision", "input": "real"}


def planned(devices: int = 4, **given: object) -> Plan:
    tables = {"workload": REAL, "training": {"epochs": 2, "seeds": 2}} | given
    return make_plan(study(**tables), Resources("cpu", devices, "a CPU"))


def test_the_default_is_trained_with_each_seed_on_every_world_size():
    requests = training_requests(planned(knobs={"batch_size": [64, 32]}))
    assert [(r.config.seed, r.config.world_size, r.config.setting.strategy) for r in requests] == [
        (seed, size, "single" if size == 1 else "ddp") for seed in (0, 1) for size in (1, 2, 4)
    ]
    assert {r.role for r in requests} == {"training"}
    assert {r.config.setting.batch_size for r in requests} == {64}
    assert all(r.training.seeds == (r.config.seed,) for r in requests)


def test_one_device_is_trained_even_where_no_step_is_measured_on_it():
    requests = training_requests(planned(scaling={"world_sizes": [2]}))
    assert [r.config.world_size for r in requests] == [1, 2, 1, 2]


def test_nothing_is_trained_without_the_table():
    assert training_requests(planned(training=None)) == []


def test_the_reference_batch_is_one_devices():
    weak = training_requests(planned(knobs={"batch_size": 16, "gradient_accumulation": 2}))
    assert {(r.config.world_size, r.reference_batch, r.config.global_batch_size) for r in weak} == {
        (1, 32, 32), (2, 32, 64), (4, 32, 128)
    }  # fmt: skip
    strong = training_requests(planned(scaling={"mode": "strong"}, knobs={"batch_size": 64}))
    assert {(r.reference_batch, r.config.global_batch_size) for r in strong} == {(64, 64)}
    own = training_requests(planned(training={"reference_batch": 256}))
    assert {r.reference_batch for r in own} == {256}


CURE = {
    "scaling": {"mode": "strong"},
    "knobs": {
        "batch_size": [32, 128],
        "gradient_accumulation": [1, 4],
        "gradient_compression": ["none", "fp16"],
    },
    "search": {"method": "ablation"},
}


def test_an_ablation_trains_its_cure_too():
    """The default and all changes together, neither of the changes alone."""
    requests = training_requests(planned(devices=2, training={"epochs": 2}, **CURE))
    asked = [
        (
            r.config.world_size,
            r.config.global_batch_size,
            r.config.batch_size,
            r.config.setting.gradient_compression,
        )
        for r in requests
    ]
    assert asked == [(1, 32, 32, "none"), (1, 512, 128, "none"), (2, 32, 16, "none"), (2, 512, 64, "fp16")]


def test_an_ablation_without_changes_trains_its_default_once():
    linear = {"epochs": 2, "learning_rate_scaling": "linear"}
    requests = training_requests(planned(devices=2, training=linear, search={"method": "ablation"}))
    assert [r.config.world_size for r in requests] == [1, 2]


def test_the_learning_rate_belongs_to_the_default_step_of_an_ablation():
    requests = training_requests(planned(devices=2, training={"epochs": 2}, **CURE))
    assert {r.reference_batch for r in requests} == {32}
    linear = {"epochs": 2, "learning_rate_scaling": "linear"}
    requests = training_requests(planned(devices=2, training=linear, **CURE))
    factors = [request.learning_rate_factor for request in requests]
    assert factors == [1.0, 16.0, 1.0, 16.0]


def test_a_grid_trains_its_default_alone():
    knobs = {"batch_size": [32, 128]}
    assert {r.config.setting.batch_size for r in training_requests(planned(devices=2, knobs=knobs))} == {32}
