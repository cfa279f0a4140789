"""Workers that die, hang or run out of memory; a driver that is killed; Ray that dies."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.ray.conftest import Head
from tests.ray.short_patience import HUNG_S
from tests.support import faulty
from tests.support.commands import Command
from tests.support.faulty_study import GOES_ON, assert_report, read_records, write_study

pytestmark = pytest.mark.timeout(900)  # more than all that is waited for below, on busy cores too
SLOWLY = "seconds = 0.03"  # of each step: a study that is not over before it is interrupted
BATCHES = [8, 9, 10, 11, 12, 13, 14, 15]
ENDS_S = 60.0
# two agents of Ray stay for up to a minute by themselves where their raylet is gone
BY_THEMSELVES = ("Agent",)


class ShortPatience(Command):
    program = ("-m", "tests.ray.short_patience")


@pytest.mark.promise("isolation")
def test_a_fault_costs_its_trial_and_no_other(tmp_path: Path, head: Head) -> None:
    write_study(tmp_path, [faulty.FINE, faulty.OUT_OF_MEMORY, faulty.KILLED, faulty.HUNG])
    join = ("--address", head.address)
    command = ShortPatience(
        "scaling", "faulty.toml", "--output", "out", *join, folder=tmp_path, variables=head.variables
    )
    assert command.wait(600) == 0, command.output
    curve = [record for record in read_records(tmp_path) if record["request"]["role"] == "scaling"]
    found = {
        record["request"]["config"]["setting"]["batch_size"]: record
        for record in curve
        if not record["request"].get("visit")  # further ones are of the default and the best
    }
    states = {batch: record["state"] for batch, record in found.items()}
    assert states == {
        faulty.FINE: "complete",
        faulty.OUT_OF_MEMORY: "oom",
        faulty.KILLED: "crashed",
        faulty.HUNG: "timeout",
    }
    reasons = {batch: record["reason"] or "" for batch, record in found.items()}
    assert reasons[faulty.OUT_OF_MEMORY].startswith("rank 1: MemoryError")
    assert reasons[faulty.KILLED].startswith("rank 1: its process died")
    assert f"{HUNG_S:g} s" in reasons[faulty.HUNG]
    groups = [record["group"] for record in found.values()]
    assert groups == [1, 1, 1, 2]  # a death ends the group, what is agreed on does not
    assert all((record["result"] is None) == (record["state"] != "complete") for record in found.values())
    assert command.survivors(ENDS_S) == []


@pytest.mark.promise("exit 3")
def test_where_ray_dies_the_command_ends_with_the_report_and_a_code_of_its_own(tmp_path: Path) -> None:
    """While one worker group makes way for another: never else is so much asked of Ray, and waited for.

    There Ray's core ended the driver with code 1, without a report, as often as it was tried.
    """
    write_study(tmp_path, [8, 9], "[1]", more='[environment]\nPLANTED = ["a", "b"]', workload=SLOWLY)
    command = Command("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    command.wait_for("samples/s", times=2)  # all that the first group is for
    (raylet,) = command.processes("raylet/raylet ")
    raylet.kill()
    assert command.wait(ENDS_S) == 3, command.output
    assert "Ray's raylet died" in command.output
    assert "out/ray.log" in command.output
    assert command.output.count(GOES_ON) == 1
    assert "Traceback" not in command.output
    assert_report(tmp_path)
    assert [record["state"] for record in read_records(tmp_path)] == ["complete"] * 2
    assert command.survivors(ENDS_S, ignored=BY_THEMSELVES) == []


@pytest.mark.promise("killed driver")
def test_a_driver_that_is_killed_leaves_its_records_and_no_process(tmp_path: Path) -> None:
    write_study(tmp_path, BATCHES, "[1]", workload=SLOWLY)
    command = Command("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    command.wait_for("samples/s")
    assert command.workers()
    command.send(signal.SIGKILL)
    assert command.wait(ENDS_S) == -signal.SIGKILL
    assert command.survivors(ENDS_S, ignored=BY_THEMSELVES) == []
    assert {record["state"] for record in read_records(tmp_path)} == {"complete"}
