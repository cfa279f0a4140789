"""[training]: what it may say, and the learning rate's closed forms."""

import pytest

from raybench.errors import RequestError
from raybench.spec.load import resolve
from raybench.spec.study import TrainingSpec
from raybench.spec.user_input import to_toml
from raybench.spec.validation import fields
from tests.unit.studies import study

REAL = {"name": "vision", "input": "real"}


def test_warm_up_rises_evenly():
    constant = TrainingSpec(epochs=4, warmup_epochs=0.5)
    assert [constant.warmup_factor(step, 10) for step in range(7)] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0]
    )


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
            'training.learning_rate_scaling: "none", "linear" or "world_size" (received "cubic")',
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
    with pytest.raises(RequestError, match=r'^training: needs workload.input = "real" .*\'synthetic\''):
        resolve({"name": "x", "workload": {"name": "mlp"}, "training": {}})


def test_a_study_with_training_comes_back_from_its_toml():
    import tomllib

    given = study(workload=REAL, training={"epochs": 2, "seeds": 2, "target_accuracy": 0.5})
    assert resolve(tomllib.loads(to_toml(given))) == given
    assert "[training]" in to_toml(given)
    rows = {row.name: row for row in fields()}
    assert rows["training.seeds"].type.startswith("a number of seeds above 0")
    assert all(row.meaning for name, row in rows.items() if name.startswith("training."))
