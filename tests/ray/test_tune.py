"""The second runner: every trial has processes of its own, through Ray Tune."""

from __future__ import annotations

import csv
import signal
import time
from pathlib import Path

import pytest

from tests.support import faulty
from tests.support.commands import Command
from tests.support.faulty_study import read_records, write_study

pytestmark = pytest.mark.timeout(600)
SCALING = ("scaling", "--runner", "tune", "--output", "out")


def test_ctrl_c_then_resume_to_the_report_and_a_crash_costs_its_own_trial(tmp_path: Path) -> None:
    batches = [12, faulty.KILLED, faulty.FINE]  # the default is the fastest: no confirmation
    write_study(tmp_path, batches, "[2]")
    command = Command(*SCALING, "faulty.toml", folder=tmp_path)
    command.wait_for("samples/s", timeout_s=240)  # the first trial is on disk
    time.sleep(3)  # and the next one's processes are starting
    command.send(signal.SIGINT)
    began = time.monotonic()
    assert command.wait(30) == 130, command.output
    assert command.survivors(10 - (time.monotonic() - began)) == []
    assert "To go on: python -m raybench.study scaling --runner tune --resume --output out" in command.output
    assert "Traceback" not in command.output
    kept = read_records(tmp_path)
    assert [record["state"] for record in kept] == ["complete"]

    resumed = Command(*SCALING, "--resume", folder=tmp_path, log="resumed.txt")
    assert resumed.wait(400) == 0, resumed.output  # three groups of processes of their own
    assert resumed.survivors(10) == []
    records = read_records(tmp_path)
    assert records[: len(kept)] == kept
    assert len({record["trial_id"] for record in records}) == len(records)
    curve = [record for record in records if record["request"]["role"] == "scaling"]
    scaling = [
        record for record in curve if not record["request"].get("again")
    ]  # a busy machine may repeat one
    found = [(each["request"]["config"]["setting"]["batch_size"], each["state"]) for each in scaling]
    assert found == list(zip(batches, ["complete", "crashed", "complete"], strict=True))
    assert "rank 1: its process died" in scaling[1]["reason"]
    assert [each["ranks"] for each in scaling] == [[0, 1]] * 3
    groups = [record["group"] for record in records[len(kept) :]]
    assert len(set(groups)) == len(groups)  # each in processes of its own
    with (tmp_path / "out" / "report" / "summary.csv").open() as file:
        rows = {row["trial_id"]: row for row in csv.DictReader(file)}
    assert float(rows[scaling[0]["trial_id"]]["efficiency"]) > 0
    assert "2 devices" in resumed.output
