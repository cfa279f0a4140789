"""``communication`` on two ranks: a sweep, its report, an interrupt in the middle, going on."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path

import pytest

from raybench.analysis.scaling import Scaling
from raybench.records.record import TrialRecord
from tests.support.forked import ForkedCommand


def interrupted_after_a_trial() -> None:
    """In the command: Ctrl-C comes when the first trial is on disk, so there is something left to do."""
    from raybench.commands.progress import StudyProgress

    done = StudyProgress.trial_done

    def trial_done(self: StudyProgress, record: TrialRecord, scaling: Scaling | None) -> None:
        done(self, record, scaling)
        os.kill(os.getpid(), signal.SIGINT)

    StudyProgress.trial_done = trial_done  # type: ignore[method-assign]


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "out" / "report" / "communication.csv").open()))


@pytest.mark.promise("communication")
def test_a_sweep_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    asked = (
        "--device",
        "cpu",
        "--world-sizes",
        "2,3",
        "--oversubscribe",
        "--sizes",
        "1KiB,1MiB",
        "--max-seconds",
        "2s",
    )
    command = ForkedCommand(
        "communication", "--output", "out", *asked, folder=tmp_path, changed=interrupted_after_a_trial
    )
    assert command.wait() == 130, command.output
    assert command.survivors(10) == []
    assert "Report:  out/report/report.html" in command.output
    assert "python -m raybench.study communication --resume --output out" in command.output
    assert len(rows(tmp_path)) == 8
    lines = (tmp_path / "out" / "trials.jsonl").read_text().splitlines()
    assert len(lines) == 1
    goes_on = ("communication", "--resume", "--output", "out")
    again = ForkedCommand(*goes_on, folder=tmp_path, log="again.txt")
    assert again.wait() == 0, again.output
    after = (tmp_path / "out" / "trials.jsonl").read_text().splitlines()
    assert after[:1] == lines
    assert len({json.loads(line)["trial_id"] for line in after}) == len(after) == 2
    assert [row["world_size"] for row in rows(tmp_path)] == ["3"] * 8 + ["2"] * 8
    for row in rows(tmp_path):
        assert row["backend"] == "gloo"
        assert (row["nodes"], row["placement"]) == ("1", "pack")
        assert float(row["time_low_s"]) <= float(row["time_s"]) <= float(row["time_high_s"])
        assert int(row["rounds"]) >= 3
    assert again.survivors(10) == []
