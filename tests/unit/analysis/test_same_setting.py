"""What counts as the same setting, and as the same question."""

from __future__ import annotations

import pytest

from raybench.analysis.reference import between_starts, without_batch
from raybench.analysis.stats.statistics import BETWEEN_STARTS
from raybench.records.requests import Configuration
from raybench.spec import Setting
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import config, measured

TWO = {"setting": Setting(batch_size=32, bucket_cap_mb=1)}
ONE = {"setting": Setting(batch_size=32).at(1), "world_size": 1}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (TWO, TWO, True),
        (TWO, TWO | {"world_size": 4, "placement": "spread", "seed": 7, "oversubscribed": True}, True),
        (TWO, {"setting": Setting(batch_size=64, bucket_cap_mb=1)}, False),
        (TWO, {"setting": Setting(batch_size=32)}, False),
        (TWO, ONE, True),  # the buckets do not matter on one device
        (TWO, ONE | {"setting": Setting(batch_size=64).at(1)}, False),
        (TWO, TWO | {"environment": {"OMP_PROC_BIND": "true"}}, False),
        (TWO, TWO | {"scaling": "strong"}, False),
        (TWO, TWO | {"device": "cuda"}, False),
        (TWO, TWO | {"data": "elsewhere"}, False),
    ],
)
def test_the_same_question_differs_in_world_size_and_placement_alone(
    one: dict[str, object], other: dict[str, object], is_same: bool
) -> None:
    assert config(**one).same_question(config(**other)) is is_same
    assert config(**other).same_question(config(**one)) is is_same


def test_the_same_setting_may_be_of_another_workload() -> None:
    one, other = config(**TWO), config(**TWO, workload={"name": "vision"}, placement="spread", seed=3)
    assert one.same_setting(other)
    assert not one.same_question(other)
    for field in ({"environment": {"A": "1"}}, {"scaling": "strong"}, {"setting": Setting(batch_size=64)}):
        assert not one.same_setting(config(**TWO | field))


def test_a_setting_counts_as_far_as_it_can_matter_on_its_world_size() -> None:
    buckets = [Configuration.model_validate(dict(config(**TWO)) | {"world_size": 1})]
    buckets.append(buckets[0].model_copy(update={"setting": Setting(batch_size=32, bucket_cap_mb=25)}))
    assert buckets[0].same_setting(buckets[1])


def test_two_points_of_a_batch_curve_differ_in_the_batch_alone() -> None:
    one, other = (config(setting=Setting(batch_size=batch)) for batch in (8, 64))
    assert one != other
    assert without_batch(one) == without_batch(other)
    assert without_batch(one) != without_batch(config(setting=Setting(batch_size=8, precision="bf16")))


def test_starts_differ_between_worker_groups_alone() -> None:
    record = measured(StepCosts(plain_s=0.01), QUIET)
    elsewhere = record.model_copy(update={"group": record.group + 1})
    assert between_starts(record, record) == 0.0
    assert between_starts(record, elsewhere) == between_starts(elsewhere, record) == BETWEEN_STARTS
