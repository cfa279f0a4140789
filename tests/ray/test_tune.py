"""The second runner: every trial has processes of its own, through Ray Tune."""

from __future__ import annotations

import csv
import signal
import time
from pathlib import Path

import pytest

from tests.ray import faulty
from tests.ray.commands import Command
from tests.ray.test_faults import read_records, write_study

pytestmark = [pytest.mark.ray, pytest.mark.slow]
SCALING = ("scaling", "--runner", "tune", "--output", "out")


def test_ctrl_c_then_resume_to_the_report_and_a_crash_costs_its_own_trial(tmp_path: Path) -> None:
    write_study(tmp_path, [faulty.FINE, faulty.KILLED], "[1, 2]")
    command = Command(*SCALING, "faulty.toml", folder=tmp_path)
    command.wait_for("samples/s")  # the first trial is on disk
    time.sleep(3)  # and the next one's processes are starting
    command.send(signal.SIGINT)
    began = time.monotonic()
    assert command.wait(30) == 130, command.output
    assert command.survivors(10 - (time.monotonic() - began)) == []
    assert "To go on: python -m raybench.study scaling --resume --output out --runner tune" in command.output
    assert "Traceback" not in command.output
    kept = read_records(tmp_path)
    assert [record["state"] for record in kept] == ["complete"]

    resumed = Command(*SCALING, "--resume", folder=tmp_path, log="resumed.txt")
    assert resumed.wait() == 0, resumed.output
    assert resumed.survivors(10) == []
    records = read_records(tmp_path)
    assert records[: len(kept)] == kept
    assert len({record["trial_id"] for record in records}) == len(records)
    found = {
        (record["request"]["config"]["world_size"], record["request"]["config"]["setting"]["batch_size"]): record
        for record in records
        if record["request"]["role"] == "scaling"
    }
    assert {place: record["state"] for place, record in found.items()} == {
        (2, faulty.FINE): "complete",
        (2, faulty.KILLED): "crashed",
        (1, faulty.FINE): "complete",
        (1, faulty.KILLED): "complete",  # there is no rank 1 that could be killed
    }
    crashed = found[2, faulty.KILLED]
    assert "rank 1" in crashed["reason"]
    assert "died" in crashed["reason"]
    for (world_size, _), record in found.items():  # workers of exactly the trial's size
        assert record["ranks"] == list(range(world_size))
    resumed_groups = [record["group"] for record in records[len(kept) :]]
    assert len(set(resumed_groups)) == len(resumed_groups)
    with (tmp_path / "out" / "report" / "summary.csv").open() as file:
        rows = {row["trial_id"]: row for row in csv.DictReader(file)}
    assert rows[found[2, faulty.FINE]["trial_id"]]["efficiency"]
    assert "2 devices" in resumed.output
