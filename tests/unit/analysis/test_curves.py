"""Scaling and batch curves, and where a batch curve passes a speed-up of 1."""

from __future__ import annotations

import math

import pytest

from raybench.analysis import analyse
from raybench.analysis.choice import is_default
from raybench.analysis.curves import crossover
from raybench.analysis.stats.statistics import Estimate
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, run_all
from tests.unit.studies import asked, exactly, failed, grid, planted, searched, study


def test_each_setting_has_a_curve_the_defaults_first_and_one_device_belongs_to_all() -> None:
    spec = study(
        knobs={"batch_size": [32], "bucket_cap_mb": ["default", 1]}, scaling={"world_sizes": [1, 2, 4]}
    )
    results = analyse(spec, grid(spec, (1, 2, 4))[0])
    assert [results.label(curve[-1]) for curve in results.curves] == ["default buckets", "1 MiB buckets"]
    assert [is_default(results.study, curve[-1].config) for curve in results.curves] == [True, False]
    for curve in results.curves:
        assert [record.config.world_size for record in curve] == [1, 2, 4]
    first, second = results.curves
    assert first[0].trial_id == second[0].trial_id  # measured once
    assert first[1].trial_id != second[1].trial_id


def test_each_placement_has_a_curve() -> None:
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
    assert [results.label(curve[-1]) for curve in results.curves] == [
        "batch 32, fp32, pack",
        "batch 32, fp32, spread",
    ]
    assert [[each.config.world_size for each in curve] for curve in results.curves] == [[1, 2, 4]] * 2


def test_a_search_alone_has_curves_of_one_point_and_gives_way_to_scaling_trials() -> None:
    spec = study(knobs={"batch_size": [32, 64, 128]}, search={"method": "optuna", "trials": 3})
    records = searched(spec, (1, 2), Setting(batch_size=128))
    search = [record for record in records if record.request.role == "search"]
    assert [len(curve) for curve in analyse(spec, search).curves] == [1, 1]
    assert [len(curve) for curve in analyse(spec, records).curves] == [2, 2]


def test_a_world_size_that_failed_is_not_on_the_curve() -> None:
    spec = study(knobs={"batch_size": [32]}, scaling={"world_sizes": [1, 2, 4]})
    records = [*grid(spec, (1, 4))[0], failed(asked(spec, "scaling", Setting(batch_size=32), 2))]
    (curve,) = analyse(spec, records).curves
    assert [record.config.world_size for record in curve] == [1, 4]


def test_the_batch_curve_passes_1_between_its_neighbours() -> None:
    results = planted({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size")
    (curve,) = results.batch_curves
    assert curve.is_headline
    assert [(point.batch_size, point.speedup.value) for point in curve.points] == [
        (8, pytest.approx(0.6)),
        (128, pytest.approx(1.6)),
    ]
    assert curve.crossover is not None
    assert (curve.crossover.below, curve.crossover.above) == (8, 128)


def test_without_a_setting_at_two_batches_there_is_no_batch_curve() -> None:
    spec = study(knobs={"batch_size": [8, 64], "precision": ["fp32", "bf16"]})
    settings = (Setting(batch_size=8), Setting(batch_size=64, precision="bf16"))
    assert (
        analyse(
            spec, run_all(FakeRunner(), [asked(spec, "search", each, 2) for each in settings])[0]
        ).batch_curves
        == ()
    )


def test_the_curve_that_passes_1_comes_first() -> None:
    costs = {
        (8, "fp32"): exactly(0.3),
        (128, "fp32"): exactly(0.4),
        (8, "bf16"): exactly(0.45),
        (128, "bf16"): exactly(0.8),
    }
    first, second = planted(costs, "batch_size", "precision").batch_curves
    assert (first.label, first.crossover is None, first.is_headline) == ("bf16", False, False)
    assert (second.label, second.crossover, second.is_headline) == ("fp32", None, True)


def test_one_device_has_no_batch_curve() -> None:
    spec = study(knobs={"batch_size": [8, 128]})
    assert analyse(spec, grid(spec, (1,))[0]).batch_curves == ()


def at(value: float, relative: float = 0.02) -> Estimate:
    return Estimate(value, value * (1 - relative), value * (1 + relative), 12)


def test_interpolates_on_logarithms_between_the_neighbours() -> None:
    found = crossover([(512, at(1.6)), (32, at(0.8)), (128, at(1.25))])
    assert found is not None
    assert found.batch == pytest.approx(math.sqrt(32 * 128))
    assert (found.below, found.above) == (32, 128)


def test_a_power_law_is_found_exactly() -> None:
    found = crossover([(batch, at((batch / 70) ** 0.4)) for batch in (32, 128, 512)])
    assert found is not None
    assert found.batch == pytest.approx(70)


@pytest.mark.parametrize("speedups", [(0.5, 0.9), (1.1, 1.5), (1.2, 0.9), (1.5,), ()])
def test_not_bracketed_is_none(speedups: tuple[float, ...]) -> None:
    assert crossover([(2**index, at(value)) for index, value in enumerate(speedups)]) is None


def test_a_second_passage_of_1_is_reported() -> None:
    found = crossover([(8, at(0.8)), (32, at(1.2)), (128, at(0.9)), (512, at(1.5))])
    assert found is not None
    assert (found.below, found.above) == (128, 512)
    assert (found.is_only, found.is_slower) == (False, True)
    once = crossover([(8, at(0.8)), (32, at(1.2))])
    assert once is not None
    assert once.is_only


def test_slower_needs_an_interval_below_1() -> None:
    unsure = crossover([(32, at(0.98, 0.05)), (128, at(1.3))])
    assert unsure is not None
    assert not unsure.is_slower
