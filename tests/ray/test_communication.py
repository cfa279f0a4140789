"""``communication`` with a local Ray cluster: a sweep, its report, an interrupt in the middle, going on."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path

from tests.support.commands import Command


class ShortParts(Command):
    program = ("-m", "tests.ray.short_parts")


def sweep(folder: Path, *more: str) -> Command:
    asked = ("communication", "--device", "cpu", "--output", "out", *more)
    return ShortParts(*asked, folder=folder)


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "out" / "report" / "communication.csv").open()))


def test_a_sweep_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    asked = ("--world-sizes", "2", "--sizes", "1KiB,1MiB", "--max-seconds", "40s")
    command = sweep(tmp_path, *asked)
    command.wait_for("messages, n=")  # a part is on the disk
    command.send(signal.SIGINT)
    # two cores may be steady enough for one part to do
    code = command.wait(60)
    assert code in (0, 130), command.output
    assert command.survivors(10) == []
    assert "Report:  out/report/report.html" in command.output
    before = rows(tmp_path)
    assert len(before) == 8
    if code == 130:
        assert "python -m raybench.study communication --resume --output out" in command.output
    lines = (tmp_path / "out" / "trials.jsonl").read_text().splitlines()
    again = sweep(tmp_path, "--resume", "--max-seconds", "10s")
    assert again.wait() == 0, again.output
    after = (tmp_path / "out" / "trials.jsonl").read_text().splitlines()
    assert after[: len(lines)] == lines
    assert len({json.loads(line)["trial_id"] for line in after}) == len(after)
    for row in rows(tmp_path):
        assert row["backend"] == "gloo"
        assert (row["world_size"], row["nodes"], row["placement"]) == ("2", "1", "pack")
        assert float(row["time_low_s"]) <= float(row["time_s"]) <= float(row["time_high_s"])
        assert int(row["rounds"]) >= 3
    assert again.survivors(10) == []
