"""The second runner: every trial has processes of its own, through Ray Tune."""

from __future__ import annotations

import csv
import signal
from pathlib import Path

import pytest

from raybench.commands.process import INTERRUPTED
from tests.support import budget, faulty
from tests.support.commands import Command
from tests.support.faulty_study import read_records, write_study
from tests.support.planted.faults import until

pytestmark = pytest.mark.timeout(1200)
SCALING = ("scaling", "--runner", "tune", "--output", "out")
ENDS_S = 60.0


@pytest.mark.promise("tune")
def test_each_trial_has_its_own_processes_and_a_crash_costs_one(tmp_path: Path) -> None:
    write_study(tmp_path, [faulty.FINE, faulty.KILLED])
    command = Command(*SCALING, "faulty.toml", folder=tmp_path)
    budget.took(budget.GROUPS, 2)
    assert command.wait(600) == 0, command.output
    assert command.survivors(ENDS_S) == []
    records = [record for record in read_records(tmp_path) if not record["request"].get("visit")]
    found = [(each["request"]["config"]["setting"]["batch_size"], each["state"]) for each in records]
    assert found == [(faulty.FINE, "complete"), (faulty.KILLED, "crashed")]
    assert records[1]["reason"].startswith("rank 1: its process died")
    assert [each["ranks"] for each in records] == [[0, 1]] * 2
    assert records[0]["group"] != records[1]["group"]
    with (tmp_path / "out" / "report" / "summary.csv").open() as file:
        rows = {row["trial_id"]: row for row in csv.DictReader(file)}
    assert float(rows[records[0]["trial_id"]]["efficiency"]) > 0
    assert "2 devices" in command.output


@pytest.mark.long
def test_ctrl_c_then_resume_to_the_report(tmp_path: Path) -> None:
    batches = [12, 9, faulty.FINE]
    write_study(tmp_path, batches)
    command = Command(*SCALING, "faulty.toml", folder=tmp_path)
    command.wait_for("samples/s", timeout_s=240)  # the first trial is on disk
    known = set(command.workers())
    assert until(lambda: bool(set(command.workers()) - known), 120)  # the next one's have started
    command.send(signal.SIGINT)
    assert command.wait(ENDS_S) == INTERRUPTED, command.output
    assert command.survivors(ENDS_S) == []
    assert "To go on: python -m raybench.study scaling --runner tune --resume --output out" in command.output
    assert "Traceback" not in command.output
    kept = read_records(tmp_path)
    assert {record["state"] for record in kept} == {"complete"}
    assert len(kept) < len(batches)

    resumed = Command(*SCALING, "--resume", folder=tmp_path, log="resumed.txt")
    assert resumed.wait(500) == 0, resumed.output
    assert resumed.survivors(ENDS_S) == []
    records = read_records(tmp_path)
    assert records[: len(kept)] == kept
    assert len({record["trial_id"] for record in records}) == len(records)
    curve = [record for record in records if record["request"]["role"] == "scaling"]
    once = [record for record in curve if not record["request"].get("visit")]
    assert [each["request"]["config"]["setting"]["batch_size"] for each in once] == batches
    groups = [record["group"] for record in records[len(kept) :]]
    assert len(set(groups)) == len(groups)  # each in processes of its own
