"""Workers that die, hang, run out of memory or raise; a driver that is interrupted or killed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from raybench.testing.faults import until
from tests.support import faulty
from tests.support.commands import Command
from tests.support.faulty_study import GOES_ON, assert_report, read_records, write_study

HUNG_S = 12  # is waited for; a sound trial takes a second, on busy cores several


def test_every_fault_costs_its_trial_and_no_other(tmp_path: Path) -> None:
    write_study(
        tmp_path,
        [
            faulty.FINE,
            faulty.KILLED,
            faulty.HUNG,
            faulty.OUT_OF_MEMORY,
            9,
        ],
        timeout_s=HUNG_S,
    )
    command = Command("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    command.wait_for("samples/s")
    # all of Ray, and gloo, are on the loopback interface; torch's store of addresses can be told none
    assert [each for each in command.reachable() if "RayTrainWorker" not in each] == []
    assert len(command.reachable()) <= 1
    assert command.wait() == 0, command.output
    found = {
        record["request"]["config"]["setting"]["batch_size"]: record
        for record in read_records(tmp_path)
        if record["request"]["role"] == "scaling"
    }
    states = {batch: record["state"] for batch, record in found.items()}
    assert states == {
        faulty.FINE: "complete",
        faulty.KILLED: "crashed",
        faulty.HUNG: "timeout",
        faulty.OUT_OF_MEMORY: "oom",
        9: "complete",
    }
    reasons = {batch: record["reason"] or "" for batch, record in found.items()}
    assert "rank 1" in reasons[faulty.KILLED]
    assert "died" in reasons[faulty.KILLED]
    assert f"{HUNG_S} s" in reasons[faulty.HUNG]
    assert "rank 1" in reasons[faulty.OUT_OF_MEMORY]
    groups = {batch: record["group"] for batch, record in found.items()}
    # a death and a hang end the group, what is agreed on does not
    ends = [groups[batch] for batch in (faulty.KILLED, faulty.HUNG, 9)]
    assert ends == sorted(set(ends))
    assert groups[faulty.OUT_OF_MEMORY] == groups[9]
    assert all((record["result"] is None) == (record["state"] != "complete") for record in found.values())
    assert command.survivors(10) == []


def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(tmp_path: Path) -> None:
    write_study(tmp_path, [8, 9], workload="seconds = 0.005")
    command = Command("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    command.wait_for("samples/s")
    command.send(signal.SIGINT)
    time.sleep(0.2)
    command.send(signal.SIGINT)  # an impatient second one changes nothing
    began = time.monotonic()
    assert command.wait(30) == 130, command.output
    assert command.survivors(10 - (time.monotonic() - began)) == []
    kept = read_records(tmp_path)
    assert [record["state"] for record in kept][:1] == ["complete"]
    assert command.output.count(GOES_ON) == 1
    assert "Report:  out/report/report.html" in command.output
    assert "Traceback" not in command.output
    assert_report(tmp_path)

    resumed = Command("scaling", "--resume", "--output", "out", folder=tmp_path, log="resumed.txt")
    assert resumed.wait() == 0, resumed.output
    after = read_records(tmp_path)
    assert after[: len(kept)] == kept
    ids = [record["trial_id"] for record in after]
    assert len(ids) == len(set(ids))
    assert {record["request"]["config"]["setting"]["batch_size"] for record in after} == {8, 9}
    assert (tmp_path / "out" / "report" / "report.html").exists()


def test_killed_raylet_and_driver_lose_one_trial_each_at_most_and_their_workers_end(tmp_path: Path) -> None:
    write_study(tmp_path, [8, 9], more='[environment]\nPLANTED = ["a", "b"]', workload="seconds = 0.005")
    first = Command("scaling", "faulty.toml", "--output", "out", folder=tmp_path, log="first.txt")
    first.wait_for("samples/s")
    (raylet,) = first.processes("raylet/raylet ")
    raylet.kill()
    code = first.wait(60)
    assert code in (3, 1), first.output  # 1: Ray's core was faster
    assert first.output.count(GOES_ON) == 1
    if code == 3:
        assert "Ray's raylet died; what Ray said is in out/ray.log" in first.output
        assert_report(tmp_path)
    assert "Traceback" not in first.output
    assert first.survivors(15, ignored=("Agent",)) == []
    assert [record["state"] for record in read_records(tmp_path)][:1] == ["complete"]

    command = Command("scaling", "--resume", "--output", "out", folder=tmp_path)
    # the second group: process knobs got processes of their own
    assert until(lambda: len(read_records(tmp_path)) >= 3, 120), command.output
    records = read_records(tmp_path)
    assert [record["request"]["config"]["environment"]["PLANTED"] for record in records] == ["a", "a", "b"]
    assert records[0]["group"] <= records[1]["group"] < records[2]["group"]
    workers = command.workers()
    assert workers
    command.send(signal.SIGKILL)
    command.process.wait(10)
    assert until(lambda: GOES_ON in command.output, 10), command.output
    assert "raybench was ended from outside" in command.output
    # two agents of Ray stay for up to a minute by themselves
    assert command.survivors(15, ignored=("Agent",)) == []
    assert len(read_records(tmp_path)) >= 3
