"""Scaling and batch curves, and where a batch curve passes a speed-up of 1."""

from __future__ import annotations

import pytest

from raybench.analysis.choice import is_default
from raybench.analysis.resolve import BatchPoint, slower_at
from raybench.analysis.results import analyse
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


def test_the_batch_curve_is_of_the_headlines_setting() -> None:
    costs = {
        (128, "fp32"): exactly(0.8, 0.04),
        (8, "fp32"): exactly(0.3),
        (8, "bf16"): exactly(0.45),
    }
    points = planted(costs, "batch_size", "precision").batch_curve
    assert [(point.batch_size, point.speedup.value) for point in points] == [
        (8, pytest.approx(0.6)),
        (128, pytest.approx(1.6)),
    ]
    assert slower_at(points) == (8, 128)


def test_one_device_has_no_batch_curve() -> None:
    spec = study(knobs={"batch_size": [8, 128]})
    assert analyse(spec, grid(spec, (1,))[0]).batch_curve == ()


def at(value: float, relative: float = 0.02) -> Estimate:
    return Estimate(value, value * (1 - relative), value * (1 + relative), 12)


@pytest.mark.parametrize(
    ("speedups", "found"),
    [
        ((0.5, 0.8, 1.2), (2, 4)),
        ((0.5, 0.9), (2, None)),
        ((1.1, 1.5), None),
        ((1.2, 0.9), None),
        ((0.8, 1.2, 0.9, 1.5), None),  # a larger batch than one that pays does not
        ((0.5, 0.99, 1.2), (1, 4)),  # 0.99 is not certainly below 1
        ((0.99, 1.3), None),
        ((), None),
    ],
)
def test_the_largest_batch_at_which_devices_are_slower(
    speedups: tuple[float, ...], found: tuple[int, int | None] | None
) -> None:
    assert slower_at([BatchPoint(2**place, at(value)) for place, value in enumerate(speedups)]) == found
