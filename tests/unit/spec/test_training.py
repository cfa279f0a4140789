"""[training]: what it may say, the learning rate's closed forms, and the trials it stands for."""

import math

import pytest

from raybench.errors import RequestError
from raybench.machine.resources import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.requests import TrainingRequest
from raybench.spec import TrainingSpec
from raybench.spec.describe import fields, show
from raybench.spec.load import resolve
from raybench.spec.toml import to_toml
from tests.unit.studies import config, request, study

REAL = {"name": "vision", "input": "real"}


def planned(devices: int = 4, **given: object) -> Plan:
    tables = {"workload": REAL, "training": {"epochs": 2, "seeds": 2}} | given
    return make_plan(study(**tables), Resources("cpu", devices, "a CPU"))


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("linear", 8.0), ("square_root", math.sqrt(8))])
def test_the_learning_rate_grows_by_rule(rule, factor):
    spec = TrainingSpec(learning_rate_scaling=rule)
    assert spec.learning_rate_factor(256, 32) == pytest.approx(factor)
    assert spec.learning_rate_factor(32, 32) == 1.0


def test_warm_up_rises_evenly_and_cosine_falls_to_nothing():
    constant = TrainingSpec(epochs=4, warmup_epochs=0.5)
    assert [constant.schedule_factor(step, 10) for step in range(7)] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0]
    )
    cosine = TrainingSpec(epochs=3, warmup_epochs=1.0, schedule="cosine")
    found = [cosine.schedule_factor(step, 10) for step in range(30)]
    assert found[9] == found[10] == 1.0
    assert found[20] == pytest.approx(0.5)
    assert found[29] == pytest.approx(0.5 * (1 + math.cos(math.pi * 19 / 20)))


def test_the_last_epoch_is_evaluated_whatever_the_interval():
    spec = TrainingSpec(epochs=5, evaluate_every=2)
    assert [epoch for epoch in range(1, 6) if spec.is_evaluated(epoch)] == [2, 4, 5]


def test_a_number_of_seeds_counts_from_0():
    assert TrainingSpec(seeds=3).seeds == (0, 1, 2)
    assert TrainingSpec(seeds=[7, 5]).seeds == (7, 5)


@pytest.mark.parametrize(
    ("training", "line"),
    [
        ({"epochs": 0}, "training.epochs: a whole number above 0 (received 0)"),
        ({"seeds": [1, 1]}, "training.seeds: each value once, 1 stands there twice (received [1, 1])"),
        ({"epoch": 2}, "training.epoch: unknown field, did you mean training.epochs?"),
        (3, "training: a table (received 3)"),
        (
            {"learning_rate_scaling": "cubic"},
            'training.learning_rate_scaling: "none", "linear" or "square_root" (received "cubic")',
        ),
        (
            {"target_accuracy": 80},
            "training.target_accuracy: a number above 0 and below 1 (received 80)",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_rule(training, line):
    with pytest.raises(RequestError) as caught:
        resolve({"name": "x", "workload": REAL, "training": training})
    assert caught.value.problems == (line,)


def test_only_real_input_can_be_trained_on():
    with pytest.raises(RequestError, match=r"^training: only real input .*workload.input = 'synthetic'"):
        resolve({"name": "x", "workload": {"name": "mlp"}, "training": {}})


def test_a_study_with_training_comes_back_from_its_toml():
    import tomllib

    given = study(workload=REAL, training={"epochs": 2, "seeds": 2, "target_accuracy": 0.5})
    assert resolve(tomllib.loads(to_toml(given))) == given
    assert "[training]" in show(given)
    assert "# training is unset" in show(study())
    rows = {row.name: row for row in fields()}
    assert rows["training.seeds"].type.startswith("a number of seeds above 0")
    assert all(row.meaning for name, row in rows.items() if name.startswith("training."))


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


def test_the_id_covers_the_training_but_not_how_long_it_may_take():
    plain, patient, longer = (
        TrainingRequest(config=config(workload=REAL), training=spec)
        for spec in (TrainingSpec(), TrainingSpec(timeout_seconds=1.0), TrainingSpec(epochs=9))
    )
    assert plain.trial_id == patient.trial_id
    assert plain.trial_id != longer.trial_id
    assert plain.trial_id != request(workload=REAL).trial_id
    assert (patient.timeout_s, request().timeout_s) == (1.0, 300.0)
