"""The second runner: every trial has processes of its own, through Ray Tune."""

from __future__ import annotations

import csv
import signal
from pathlib import Path

import pytest

from raybench.commands.process import INTERRUPTED
from tests.conftest import ROOT
from tests.ray.conftest import Head
from tests.support import budget, faulty
from tests.support.commands import Command
from tests.support.faulty_study import read_records, write_study
from tests.support.planted.faults import until

pytestmark = pytest.mark.timeout(1200)
SCALING = ("scaling", "--runner", "tune", "--output", "out")
ENDS_S = 60.0


@pytest.mark.promise("tune")
def test_each_trial_has_its_own_processes_and_a_crash_costs_one(tmp_path: Path, head: Head) -> None:
    write_study(tmp_path, [faulty.FINE, faulty.KILLED])
    command = Command(
        *SCALING, "faulty.toml", "--address", head.address, folder=tmp_path, variables=head.variables
    )
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
def test_a_script_runs_unchanged_in_processes_of_its_own(tmp_path: Path) -> None:
    script = ROOT / "tests" / "support" / "scripts" / "planted.py"
    words = ("--script", str(script), "--args", "--base-ms 20 --send-ms 10", "--set", "measure.visits=1")
    command = Command(*SCALING, *words, folder=tmp_path)
    assert command.wait(600) == 0, command.output
    assert command.survivors(ENDS_S) == []
    records = read_records(tmp_path)
    assert {(each["request"]["config"]["world_size"], each["state"]) for each in records} == {
        (1, "complete"),
        (2, "complete"),
    }
    assert len({each["group"] for each in records}) == len(records)
    with (tmp_path / "out" / "report" / "summary.csv").open() as file:
        (two,) = [row for row in csv.DictReader(file) if row["world_size"] == "2"]
    assert float(two["efficiency"]) == pytest.approx(20 / 30, abs=0.1)


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
