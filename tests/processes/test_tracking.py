"""``--log``: what each tracker has of a study, read back by the tracker's own library."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybench.analysis.results import StudyResults
from raybench.commands.tracking import log_study
from raybench.report.document import write_report
from tests.support.analysis import analyse
from tests.unit.studies import grid, study

BLOCK = 1 << 15  # of W&B's file, a log as LevelDB's
WRITTEN_S = 60.0
pytestmark = pytest.mark.filterwarnings("default")  # those of the libraries are theirs


@pytest.fixture
def results() -> StudyResults:
    spec = study(name="tracked", knobs={"batch_size": 64})
    return analyse(spec, grid(spec, (1, 2))[0])


@pytest.fixture
def directory(results: StudyResults, tmp_path: Path) -> Path:
    """With the report in it."""
    write_report(tmp_path / "tracked-1", results)
    return tmp_path / "tracked-1"


def efficiencies(results: StudyResults) -> set[float]:
    """Of the trials, to the digits that a float of 32 bits keeps."""
    return {round(each.efficiency, 5) for each in results.trials if each.efficiency is not None}


@pytest.mark.promise("trackers")
def test_mlflow_has_a_run_with_the_report_and_a_nested_one_for_each_trial(
    results: StudyResults, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    # its store of files, which newer releases only have where they are told so
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert log_study("mlflow", results, directory) is None
    client = MlflowClient()
    experiment = client.get_experiment_by_name("tracked")
    runs = client.search_runs([experiment.experiment_id])
    (of_study,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    trials = [run for run in runs if run is not of_study]
    assert of_study.info.run_name == "tracked-1"
    assert of_study.data.metrics["efficiency"] == results.headline_scaling.efficiency.value
    files = [each.path for each in client.list_artifacts(of_study.info.run_id, "report")]
    assert {"report/report.html", "report/summary.json"} <= set(files)
    assert len(trials) == len(results.records)
    assert {run.data.tags["mlflow.parentRunId"] for run in trials} == {of_study.info.run_id}
    assert {run.data.params["batch_size"] for run in trials} == {"64"}
    assert {run.data.params["world_size"] for run in trials} == {"1", "2"}
    assert {round(run.data.metrics["efficiency"], 5) for run in trials} == efficiencies(results)
    for name in ("step_time_s", "throughput_samples_per_s", "exposed_communication_s", "contention_s"):
        assert any(name in run.data.metrics for run in trials)
    assert {run.data.params.get("state") for run in runs} == {None, "complete"}
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_tensorboard_has_a_folder_for_each(results: StudyResults, directory: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert log_study("tensorboard", results, directory) is None
    found = {}
    for folder in (directory / "tensorboard").iterdir():
        found[folder.name] = EventAccumulator(str(folder)).Reload()
    assert set(found) == {"study", *(each.trial_id for each in results.records)}
    assert "report/text_summary" in found["study"].Tags()["tensors"]
    of_trials = [each.Scalars("efficiency")[0].value for name, each in found.items() if name != "study"]
    assert {round(each, 5) for each in of_trials} == efficiencies(results)
    assert all(each.Scalars("step_time_s")[0].value > 0 for each in found.values())

    assert log_study("tensorboard", results, directory) is None
    again = [EventAccumulator(str(folder)).Reload() for folder in (directory / "tensorboard").iterdir()]
    assert len(again) == len(found)
    assert {len(each.Scalars("step_time_s")) for each in again} == {1}


def test_wandb_has_a_group(
    results: StudyResults, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "MODE": "offline",
        "DIR": str(tmp_path),
        "PROJECT": "ours",
        "DISABLE_GIT": "true",
    }.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    assert log_study("wandb", results, directory) is None
    runs = [ended_wandb_run(path) for path in tmp_path.glob("wandb/offline-run-*/*.wandb")]
    assert {(each["project"], each["group"]) for each in runs} == {("ours", "tracked-1")}
    (of_study,) = [each for each in runs if each["job_type"] == "study"]
    trials = [each for each in runs if each["job_type"] == "trial"]
    assert of_study["name"] == "tracked-1"
    assert "report.html" in of_study["files"]
    assert len(trials) == len(results.records)
    assert {each["config"]["batch_size"] for each in trials} == {64}
    assert {round(each["metrics"]["efficiency"], 5) for each in trials} == efficiencies(results)


def ended_wandb_run(path: Path) -> dict[str, Any]:
    """What W&B would send of a run, once its own process has written the end, maybe after ``finish``."""
    deadline = time.monotonic() + WRITTEN_S
    while not (found := wandb_run(path))["has_ended"] and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def wandb_run(path: Path) -> dict[str, Any]:
    """What the file holds by now that W&B keeps while it is offline."""
    from wandb.proto import wandb_internal_pb2

    found: dict[str, Any] = {"config": {}, "metrics": {}, "files": [], "has_ended": False}
    for data in wandb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found |= {"project": run.project, "group": run.run_group, "job_type": run.job_type}
            found["name"] = run.display_name
            found["config"] |= {each.key: json.loads(each.value_json) for each in run.config.update}
        elif kind == "history":
            found["metrics"] |= {
                each.key or each.nested_key[0]: json.loads(each.value_json) for each in record.history.item
            }
        elif kind == "exit":
            found["has_ended"] = True
        elif kind == "artifact":
            found["files"] += [each.path for each in record.artifact.manifest.contents]
    return found


def wandb_records(content: bytes) -> Iterator[bytes]:
    """The records of the log, each in one piece or several: checksum, length, kind of piece, data."""
    place, record = 7, b""
    while place + 7 <= len(content):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        _, length, piece = struct.unpack_from("<IHB", content, place)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if piece in (1, 4):  # whole, or the last
            yield record
            record = b""
