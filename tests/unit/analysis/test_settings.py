"""The settings that a report shows, and what further devices bring."""

from __future__ import annotations

import pytest

from raybench.analysis.choice import is_default
from raybench.analysis.laws import amdahl_speedup, marginal_returns
from raybench.analysis.resolve import resolve
from raybench.analysis.settings import scaled_settings
from raybench.analysis.stats.statistics import Estimate
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeRunner, run_all
from tests.unit.studies import asked, exactly, failed, grid, planted, searched, study


def test_a_setting_starts_on_one_device_of_the_same_rounds() -> None:
    found = planted({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size")
    large, small = found.settings
    assert (small.main.config.setting.batch_size, large.main.config.setting.batch_size) == (8, 128)
    assert [point.world_size for point in large.points] == [1, 2]
    one, two = large.points
    assert one.scaling.throughput_samples_per_s.value == pytest.approx(128 / 0.04)
    assert two.scaling.speedup is not None
    assert two.scaling.speedup.value == pytest.approx(1.6)
    assert large.waterfall is not None
    assert amdahl_speedup(0.05, 8) == pytest.approx(5.926, abs=1e-3)


def test_every_batch_is_shown_however_slow_and_what_is_recommended() -> None:
    """In a grid every setting is scaled; the small batches are the slowest of all, and why one looks."""
    precisions = {"fp32": 1.0, "bf16": 0.9, "fp16": 0.8, "tf32": 0.95}
    costs = {
        (batch, precision): exactly(0.8 if batch > 16 else 0.3, 0.004 + batch * share * 1e-4)
        for batch in (256, 128, 16)
        for precision, share in precisions.items()
    }
    found = planted(costs, "batch_size", "precision")
    named = [found.label(each.main.record) for each in found.settings]
    assert len(named) == 6
    assert named[0] == "batch 256, fp32"
    assert {words.split(",")[0] for words in named} == {"batch 256", "batch 128", "batch 16"}
    assert found.recommendation is not None
    assert found.recommendation.config in [each.main.config for each in found.settings]
    assert [words.split(",")[0] for words in named] == sorted(
        (words.split(",")[0] for words in named), key=lambda batch: -int(batch.removeprefix("batch "))
    )
    assert len(found.compared) == 12


def test_each_setting_has_its_numbers_of_devices_the_default_first_and_one_device_belongs_to_all() -> None:
    spec = study(
        knobs={"batch_size": [32], "bucket_cap_mb": ["default", 1]}, scaling={"world_sizes": [1, 2, 4]}
    )
    results = analyse(spec, grid(spec, (1, 2, 4))[0])
    assert [results.label(each.main.record) for each in results.settings] == [
        "default buckets",
        "1 MiB buckets",
    ]
    assert [is_default(results.study, each.main.config) for each in results.settings] == [True, False]
    assert [[point.world_size for point in each.points] for each in results.settings] == [[1, 2, 4]] * 2
    first, second = ([point.record.trial_id for point in each.points] for each in results.settings)
    assert first[0] == second[0]  # measured once
    assert first[1] != second[1]


def test_each_placement_is_a_setting_of_its_own() -> None:
    spec = study(
        knobs={"batch_size": [32]}, scaling={"world_sizes": [1, 2, 4], "placement": ["pack", "spread"]}
    )
    setting = Setting(batch_size=32)
    requests = [asked(spec, "scaling", setting, 1)]
    requests += [
        asked(spec, "scaling", setting, size, placement=place)
        for size in (2, 4)
        for place in ("pack", "spread")
    ]
    results = analyse(spec, run_all(FakeRunner(noise=QUIET), requests)[0])
    assert [results.label(each.main.record) for each in results.settings] == [
        "batch 32, fp32, pack",
        "batch 32, fp32, spread",
    ]
    assert [[point.world_size for point in each.points] for each in results.settings] == [[1, 2, 4]] * 2


def test_what_was_only_searched_has_the_one_device_of_its_rounds() -> None:
    spec = study(knobs={"batch_size": [32, 64, 128]}, search={"method": "optuna", "trials": 3})
    records = searched(spec, (1, 2), Setting(batch_size=128))
    search = [record for record in records if record.request.role == "search"]
    alone, whole = analyse(spec, search).settings, analyse(spec, records).settings
    assert [[point.is_measured for point in each.points] for each in alone] == [[False, True]] * 2
    own = [each.points[0].is_measured for each in whole]
    assert own == [each.main.record.request.role == "scaling" for each in whole] == [True, True, False]


def test_what_was_searched_is_scaled_only_where_nothing_else_is() -> None:
    spec = study(knobs={"batch_size": [32, 64, 128]}, search={"method": "optuna", "trials": 3})
    records = searched(spec, (1, 2), Setting(batch_size=128))
    search = [record for record in records if record.request.role == "search"]
    alone, whole = (
        [each.main.config.setting.batch_size for each in scaled_settings(resolve(spec, of))]
        for of in (search, records)
    )
    assert sorted(alone) == [64, 128]
    assert whole == [32, 128]  # the default first


def test_a_world_size_that_failed_is_no_point() -> None:
    spec = study(knobs={"batch_size": [32]}, scaling={"world_sizes": [1, 2, 4]})
    records = [*grid(spec, (1, 4))[0], failed(asked(spec, "scaling", Setting(batch_size=32), 2))]
    (setting,) = analyse(spec, records).settings
    assert [point.world_size for point in setting.points] == [1, 4]


def over_one(value: float, half: float = 0.0) -> Estimate:
    return Estimate(value, value - half, value + half, 10)


def test_a_marginal_return_is_what_a_doubling_gains_of_as_many_devices_alone() -> None:
    found = marginal_returns([(1, over_one(1)), (4, over_one(3.4, 0.08)), (2, over_one(1.9, 0.06))])
    assert [(each.fewer, each.more) for each in found] == [(1, 2), (2, 4)]
    assert [each.each.value for each in found] == pytest.approx([0.9, 0.75])
    assert [each.each.half_width for each in found] == pytest.approx([0.06, 0.1 / 2])


def test_without_one_device_a_return_is_of_one_among_the_fewest() -> None:
    """Of eight over four, the fewest that fit."""
    (found,) = marginal_returns([(4, over_one(1)), (6, over_one(1.2, 0.1)), (8, over_one(1.5, 0.1))])
    assert (found.fewer, found.more) == (4, 8)
    assert (found.each.value, found.each.half_width) == pytest.approx((0.5, 0.1))
    assert marginal_returns([]) == marginal_returns([(1, over_one(1))]) == ()


def test_a_slower_world_size_returns_less_than_nothing() -> None:
    *_, found = marginal_returns([(1, over_one(1)), (2, over_one(1.9)), (4, over_one(1.5, 0.1))])
    assert (found.each.value, found.each.low, found.each.high) == pytest.approx((-0.2, -0.25, -0.15))
