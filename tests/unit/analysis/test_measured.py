"""Records with their estimates: which count, and that each is estimated once."""

from __future__ import annotations

from raybench.analysis.resolve import resolve
from raybench.analysis.scaling import scaling, waterfall
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.spec import Setting
from tests.support.planted import FakeHardware, FakeLearning, FakeRunner, run_all
from tests.unit.studies import asked, failed, grid, searched, study, trained

SPEC = study(knobs={"batch_size": [32, 64]}, scaling={"world_sizes": [1, 2, 4]})


def test_every_measured_trial_has_its_scaling_and_waterfall() -> None:
    records, _ = grid(SPEC, (1, 2, 4))
    results = resolve(SPEC, [*records, failed(asked(SPEC, "search", Setting(), 4))])
    assert results.target_world_size == 4
    assert len(results.measured) == len(records) == len(results.scalings)
    for record in results.measured:
        assert results.scaling(record) == scaling(record, records)
        assert results.waterfalls[record.trial_id] == waterfall(record)
    assert results.headline is not None
    assert results.headline_label == "batch 32"
    assert results.headline_scaling == scaling(results.headline, records)
    assert results.waterfall == waterfall(results.headline)
    assert [record.state for record in results.failed] == ["oom"]


def test_of_records_with_one_id_the_last_counts() -> None:
    records, _ = grid(SPEC, (1, 2))
    first = failed(asked(SPEC, "scaling", Setting(batch_size=64), 2))
    assert first.trial_id in {record.trial_id for record in records}
    results = resolve(SPEC, [first, *records])
    assert len(results.records) == len(records)
    assert results.failed == ()


def test_training_has_no_scaling_and_counts_as_complete() -> None:
    spec = study(workload={"name": "vision", "input": "real"}, training={"epochs": 2})
    records, _ = grid(spec, (1, 2))
    results = resolve(spec, [*records, *trained(spec, (1, 2), FakeLearning(num_train=77))])
    assert len(results.complete) == len(records) + 2
    assert len(results.measured) == len(records)
    assert set(results.scalings) == {record.trial_id for record in records}
    assert results.epoch_samples == 77


def test_roles_are_asked_in_their_order() -> None:
    spec = study(knobs={"batch_size": [32, 64, 128]}, search={"method": "optuna", "trials": 3})
    results = resolve(spec, searched(spec, (1, 2), Setting(batch_size=128)))
    assert {record.request.role for record in results.by_role("scaling", "search")} == {"scaling"}
    assert {record.request.role for record in results.by_role("verification", "search")} == {"search"}
    assert results.by_role("verification") == ()


def test_probes_say_what_max_stands_for_and_are_not_among_the_records() -> None:
    spec = study(knobs={"batch_size": "max"}, resources={"device": "cuda"}, scaling={"world_sizes": [1, 2]})
    plan = make_plan(spec, Resources("cuda", 2, "a GPU"))
    hardware = FakeHardware(memory_fixed_bytes=0, memory_sample_bytes=1 << 20)
    runner = FakeRunner(hardware.costs, memory_limit_bytes=10 << 30)
    (combination,) = plan.combinations()
    requests = [plan.probe(combination, batch) for batch in (1024, 2048)]
    results = resolve(spec, run_all(runner, requests)[0])
    assert results.records == ()
    assert results.headline is None
    (found,) = results.largest
    assert found.batch_size == 2048
    assert results.study.knobs.batch_size == (2048,)
    assert spec.knobs.batch_size == ("max",)


def test_nothing_is_nothing() -> None:
    results = resolve(SPEC, [])
    assert (results.headline, results.waterfall, results.headline_scaling) == (None, None, None)
    assert (results.headline_label, results.curves, results.batch_curves) == ("", (), ())
    assert results.epoch_samples is None
