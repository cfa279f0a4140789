"""Scripts of people's own, from one command to the report: plain DDP, Accelerate, transformers, Lightning."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.studies.briefly import BRIEFLY
from tests.support.faulty_study import read_records
from tests.support.forked import ForkedCommand

SCRIPTS = ROOT / "tests" / "support" / "scripts"


def scaling(folder: Path, *words: str) -> ForkedCommand:
    command = ForkedCommand("scaling", *words, "--output", "out", *BRIEFLY, folder=folder)
    assert command.wait() == 0, command.output
    assert command.survivors(10) == []
    return command


def rows(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (folder / "out" / "report" / "summary.csv").open() as file:
        return {(row["batch_size"], row["world_size"]): row for row in csv.DictReader(file)}


@pytest.mark.promise("own script")
@pytest.mark.parametrize(
    ("name", "args", "batch"),
    [
        ("with_accelerate.py", "", "32"),
        ("with_transformers.py", "8", "8"),
        ("with_lightning.py", "", "16"),
    ],
)
def test_what_torchrun_runs_is_measured(name: str, args: str, batch: str, tmp_path: Path) -> None:
    scaling(tmp_path, "--script", str(SCRIPTS / name), "--args", args)
    found = rows(tmp_path)
    assert {key: row["state"] for key, row in found.items()} == {
        (batch, "1"): "complete",
        (batch, "2"): "complete",
    }
    assert {key: int(row["global_batch_size"]) for key, row in found.items()} == {
        (batch, "1"): int(batch),
        (batch, "2"): 2 * int(batch),
    }
    assert float(found[batch, "2"]["efficiency"]) > 0  # what it is the machine decides, beside other tests
    assert found[batch, "2"]["exposed_communication_s"]
    # transformers gathers a count of tokens in every step, Lightning a flag: ranks wait for one another there
    assert bool(found[batch, "2"]["skew_s"]) == (name == "with_accelerate.py")
    report = (tmp_path / "out" / "report" / "report.md").read_text()
    assert f"{name} ran unchanged" in report
    assert "read the same samples" not in report
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix not in (".txt", ".pids")) == ["out"]


def test_knobs_reach_the_script_and_a_study_goes_on(tmp_path: Path) -> None:
    script = ("planted.py", "--args", "--base-ms {batch_size} --bs {batch_size}", "--batch-sizes", "4,8")
    (tmp_path / "planted.py").write_text((SCRIPTS / "planted.py").read_text())
    scaling(tmp_path, *script, "--bucket-cap-mb", "default,1", "--scaling", "weak")
    found = rows(tmp_path)
    assert {batch for batch, _ in found} == {"4", "8"}
    assert any(row["exposed_communication_s"] for row in found.values())
    assert all(1 <= float(row["step_time_s"]) * 1e3 / float(batch) < 10 for (batch, _), row in found.items())
    number = len(read_records(tmp_path))
    for typed in ((), script[:3]):
        again = ForkedCommand("scaling", *typed, "--resume", "--output", "out", folder=tmp_path)
        assert again.wait() == 0, again.output
        assert len(read_records(tmp_path)) == number


def test_a_global_batch_is_recognised_as_strong_scaling(tmp_path: Path) -> None:
    text = (
        (SCRIPTS / "planted.py")
        .read_text()
        .replace("Samples(), arguments.bs", "Samples(), 8 // dist.get_world_size()")
    )
    (tmp_path / "fixed.py").write_text(text)
    scaling(tmp_path, "fixed.py", "--args", "--base-ms 5")
    assert {row["scaling"] for row in rows(tmp_path).values()} == {"strong"}
    assert rows(tmp_path)["8", "2"]["efficiency"]


def test_a_script_that_fails_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\nopen('data.csv')\n")
    command = ForkedCommand("scaling", "broken.py", "--output", "out", *BRIEFLY, folder=tmp_path)
    assert command.wait() == 1, command.output
    assert "No such file or directory: 'data.csv'" in command.output
    assert "an empty directory" in command.output
    log = next((tmp_path / "out" / "traces").glob("*/rank-0.log"))
    assert "line 2" in log.read_text()
