"""A terminal that closes, a reader that leaves, a driver that is killed: what was measured is kept."""

from __future__ import annotations

import os
import pty
import select
import signal
from pathlib import Path

import pytest

from tests.support.faulty_study import GOES_ON, assert_report, read_records, write_study
from tests.support.forked import ForkedCommand

BATCHES = [8, 9, 10, 11, 12, 13, 14, 15]


def study(folder: Path) -> tuple[str, ...]:
    write_study(folder, BATCHES, workload="seconds = 0.005")
    return ("scaling", "faulty.toml", "--output", "out")


@pytest.mark.promise("closed terminal")
def test_a_terminal_that_is_closed_leaves_the_report(tmp_path: Path) -> None:
    """As when a connection breaks: a hangup for all processes of the session, and no terminal."""
    leader, follower = pty.openpty()
    command = ForkedCommand(*study(tmp_path), folder=tmp_path, terminal=os.ttyname(follower))
    said = ""
    while "samples/s" not in said:
        ready, _, _ = select.select([leader], [], [], 1.0)
        assert ready or command.process.poll() is None, said
        said += os.read(leader, 4096).decode(errors="replace") if ready else ""
    os.close(follower)
    os.close(leader)
    assert command.process.wait(60) == 130
    assert_report(tmp_path)
    assert read_records(tmp_path)[0]["state"] == "complete"
    assert command.survivors(10) == []


@pytest.mark.promise("reader leaves")
def test_a_reader_that_leaves_ends_it_with_the_report(tmp_path: Path) -> None:
    """As ``| head`` does, or a ``tee`` that is ended: how to go on is told on the other output."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = ForkedCommand(*study(tmp_path), folder=tmp_path, pipe=pipe)
    with pipe.open() as reader:
        line = "..."
        while "samples/s" not in line:
            assert line, command.output
            line = reader.readline()
    assert command.wait(60) == 130
    assert GOES_ON in command.output.splitlines()
    assert_report(tmp_path)
    assert 1 <= len(read_records(tmp_path)) < len(BATCHES)
    assert command.survivors(10) == []


@pytest.mark.promise("exit 130")
def test_ctrl_c_then_resume_measures_nothing_twice(tmp_path: Path) -> None:
    command = ForkedCommand(*study(tmp_path), folder=tmp_path)
    command.wait_for("samples/s")
    command.send(signal.SIGINT)
    assert command.wait(60) == 130, command.output
    assert command.output.count(GOES_ON) == 1
    assert "Traceback" not in command.output
    assert_report(tmp_path)
    kept = read_records(tmp_path)
    assert [record["state"] for record in kept][:1] == ["complete"]
    resumed = ForkedCommand("scaling", "--resume", "--output", "out", folder=tmp_path, log="resumed.txt")
    assert resumed.wait() == 0, resumed.output
    after = read_records(tmp_path)
    assert after[: len(kept)] == kept
    assert len({record["trial_id"] for record in after}) == len(after)
    batches = {record["request"]["config"]["setting"]["batch_size"] for record in after}
    assert batches == set(BATCHES)
    assert resumed.survivors(10) == []
