"""How it was measured, in sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybench.records.record import TrialRecord
from raybench.report.method import measured_words, method_words
from tests.support.analysis import analyse
from tests.support.planted import FakeLearning
from tests.unit.studies import failed, grid, study, trained_study


def test_training_leaves_the_words_on_the_method_as_they_are():
    plan, records = trained_study(FakeLearning())
    steps = [record for record in records if record.steps is not None]
    assert method_words(analyse(plan.study, records)) == method_words(analyse(plan.study, steps))


def test_what_another_run_would_find_is_explained() -> None:
    spec = study(knobs={"batch_size": [32]})
    assert any('"In another run"' in each for each in method_words(analyse(spec, grid(spec, (1, 2))[0])))


def test_the_spread_between_starts_is_the_one_of_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = study(knobs={"batch_size": [32]}, measure={"starts": 3})
    results = analyse(spec, grid(spec, (1, 2))[0])
    spreads = replace(results.fit.pool.spreads, start=0.123, start_unit=0.045)
    monkeypatch.setattr(type(results.fit.pool), "spreads", spreads)
    assert "; 12.3% and 4.5% between starts." in " ".join(method_words(results))


def test_one_trial_is_no_trials() -> None:
    spec = study(knobs={"batch_size": [64]})
    (record,) = grid(spec, [1])[0]
    (first, *_) = method_words(analyse(spec, [record]))
    assert first.startswith("1 of 1 trial completed, with ")
    lost = failed(record.study_request, "crashed", "no reason")
    assert method_words(analyse(spec, [lost])) == ["1 trial was tried, none completed."]


@pytest.mark.parametrize(
    ("device", "precisions", "is_said"),
    [
        ("cuda", ["fp32", "tf32"], True),
        ("cuda", ["bf16", "default"], True),
        ("cuda", ["tf32", "default"], False),
        ("cpu", ["fp32"], False),
    ],
)
def test_that_tf32_is_off_is_said_on_gpus(device: str, precisions: list[str], is_said: bool) -> None:
    spec = study(knobs={"precision": precisions})
    records = [_on(device, record) for record in grid(spec, (1, 2))[0]]
    assert ("switch TF32 off" in " ".join(method_words(analyse(spec, records)))) is is_said


@pytest.mark.parametrize(("device", "is_said"), [("cpu", True), ("cuda", False)])
def test_what_is_done_with_freed_memory_is_said_on_cpus(device: str, is_said: bool) -> None:
    records = [_on(device, record) for record in grid(study(), (1, 2))[0]]
    said = "MALLOC_TRIM_THRESHOLD_=2147483647" in " ".join(method_words(analyse(study(), records)))
    assert said is is_said


def _on(device: str, record: TrialRecord) -> TrialRecord:
    config = record.config.model_copy(update={"device": device})
    return record.model_copy(update={"request": record.request.model_copy(update={"config": config})})


def test_words_on_real_input() -> None:
    spec = study(workload={"name": "vision", "input": "real"}, knobs={"batch_size": [32]})
    assert method_words(analyse(spec, grid(spec, (1, 2))[0]))[-1] == (
        "Real input is read in an endless order: no step has a start of the loader in it."
    )
    made_up = study(knobs={"batch_size": [32]})
    assert "loader" not in " ".join(method_words(analyse(made_up, grid(made_up, (1, 2))[0])))


def test_of_trainings_alone_no_trial_is_counted_and_the_most_devices_are_named() -> None:
    plan, records = trained_study(FakeLearning())
    trainings = [record for record in records if record.request.kind == "training"]
    sizes = [record.request.config.world_size for record in trainings]
    assert (sizes[0], max(sizes)) == (1, 2)
    results = analyse(plan.study, trainings)
    assert not [each for each in method_words(results) if "trial" in each]
    assert "on 2 CPU workers" in measured_words(results)
