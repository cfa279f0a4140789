"""Scaling and batch curves, and where a batch curve passes a speed-up of 1."""

from __future__ import annotations

from raybench.analysis.choice import is_default
from raybench.analysis.results import analyse
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, run_all
from tests.unit.studies import asked, failed, grid, searched, study


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
