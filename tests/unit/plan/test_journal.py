"""Optuna's journal has what optuna-dashboard shows: objectives, knobs, speed, failures and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from raybench.analysis.objectives import UNITS
from raybench.analysis.scaling import scaling
from raybench.analysis.summary import Summary
from raybench.plan.search import Search, attributes
from raybench.records.record import State, TrialRecord
from tests.unit.plan.test_search import fails, mixed_runner, opened, plan, searched


def journal(folder: Path, trials: int = 9, **fields: Any) -> tuple[optuna.Study, list[TrialRecord]]:
    """The journal of a search, as it is opened by others, and the records of its trials."""
    planned = plan(**fields)
    found = searched(Search(planned, folder / "optuna.log"), planned, trials, mixed_runner())
    return opened(folder / "optuna.log"), [record for _, record in found]


def of(study: optuna.Study, record: TrialRecord) -> FrozenTrial:
    (trial,) = (each for each in study.trials if each.user_attrs.get("trial_id") == record.trial_id)
    return trial


def test_objectives_are_named_with_their_units(tmp_path: Path) -> None:
    search = {"method": "optuna", "objectives": ["throughput", "efficiency", "peak_memory"]}
    study, _ = journal(tmp_path, 2, search=search)
    assert study.metric_names == ["throughput (samples/s)", "efficiency", "peak memory (bytes)"]
    assert set(UNITS) >= set(search["objectives"])


def test_the_study_says_what_it_is_about(tmp_path: Path) -> None:
    study, _ = journal(tmp_path, 1)
    assert study.user_attrs == {"model": "mlp", "world_size": 2, "scaling": "weak", "device": "cpu"}


def test_a_complete_trial_has_efficiency_throughput_and_knobs(tmp_path: Path) -> None:
    study, records = journal(tmp_path)
    complete = [record for record in records if record.steps]
    assert len(complete) >= 3
    for record in complete:
        trial, estimate, setting = of(study, record), scaling(record), record.config.setting
        assert estimate.efficiency is not None
        assert trial.state is TrialState.COMPLETE
        assert trial.value == pytest.approx(estimate.throughput_samples_per_s.value, rel=0.2)
        assert trial.params == {
            "batch_size": setting.batch_size,
            "bucket_cap_mb": setting.bucket_cap_mb,
            "precision": setting.precision,
        }
        shown = trial.user_attrs
        assert shown["efficiency"] == estimate.efficiency.value
        assert shown["efficiency_low"] < shown["efficiency"] < shown["efficiency_high"]
        assert shown["throughput_samples_per_s"] == estimate.throughput_samples_per_s.value
        assert shown["step_time_low_s"] < shown["step_time_s"] < shown["step_time_high_s"]
        assert (shown["state"], shown["world_size"], shown["rounds"]) == (
            "complete",
            2,
            estimate.step_time_s.n,
        )
        assert "reason" not in shown


@pytest.mark.parametrize(
    ("state", "told"),
    [("crashed", TrialState.FAIL), ("timeout", TrialState.FAIL), ("oom", TrialState.PRUNED)],
)
def test_a_failed_trial_has_its_state_and_reason_and_no_numbers(
    tmp_path: Path, state: State, told: TrialState
) -> None:
    planned = plan()
    runner = fails(state, lambda request: request.config.setting.precision == "bf16")
    found = searched(Search(planned, tmp_path / "optuna.log"), planned, 9, runner)
    study = opened(tmp_path / "optuna.log")
    failed = [record for _, record in found if record.state == state]
    assert failed
    for record in failed:
        trial = of(study, record)
        assert trial.state is told
        assert trial.values is None
        assert trial.params["precision"] == "bf16"
        assert not trial.user_attrs.keys() & {"efficiency", "throughput_samples_per_s", "step_time_s"}
        assert trial.user_attrs["state"] == state
        assert trial.user_attrs["reason"] == "planted"


def test_there_is_a_trial_for_each_one_measured_and_no_other(tmp_path: Path) -> None:
    """To the end of a space of which larger batches do not fit, in two sittings: the second one begins with
    suggestions of which the first has the records."""
    planned, journal = plan(), tmp_path / "optuna.log"
    runner = fails("oom", lambda request: request.config.setting.batch_size >= 128)
    first = searched(Search(planned, journal), planned, 4, runner)
    resumed = Search(planned, journal)
    resumed.restore(record for _, record in first)
    found = first + searched(resumed, planned, 1000, runner)
    assert 4 < len(found) < 18
    trials = [each.user_attrs["trial_id"] for each in opened(journal).trials]
    assert trials == [record.trial_id for _, record in found]


def test_attributes_are_columns_of_the_summary_and_can_be_written(tmp_path: Path) -> None:
    _, records = journal(tmp_path)
    columns = {*Summary.__dataclass_fields__, "reason"}
    for record in records:
        assert attributes(record).keys() <= columns
        assert all(isinstance(value, str | int | float) for value in attributes(record).values())


def test_a_rebuilt_journal_shows_the_same(tmp_path: Path) -> None:
    study, records = journal(tmp_path)
    Search(plan(), tmp_path / "again.log").restore(records)
    again = opened(tmp_path / "again.log")
    assert again.metric_names == study.metric_names
    assert again.user_attrs == study.user_attrs
    for record in records:
        assert of(again, record).user_attrs == of(study, record).user_attrs
