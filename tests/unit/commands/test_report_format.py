"""``report --format``: the figures as another program reads them, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from raybench.errors import RequestError
from raybench.machine.environment import capture
from raybench.records.store import ResultsDirectory
from raybench.study import app
from tests.unit.studies import grid, study


def test_step_times_are_printed_and_nothing_is_written(tmp_path: Path) -> None:
    spec, directory = study(knobs={"batch_size": [64]}), tmp_path / "results"
    with ResultsDirectory.create(directory, spec, capture()) as store:
        for record in grid(spec, (1, 2))[0]:
            store.append(record)
    done = CliRunner().invoke(app, ["report", str(directory), "--format", "github-action-benchmark"])
    assert done.exit_code == 0
    assert [each["name"].split(", ")[0].split(": ")[1] for each in json.loads(done.stdout)] == [
        "1 device",
        "2 devices",
    ]
    assert not (directory / "report").exists()


def test_of_a_file_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text("nodes,world_size,batch_size,step_time_s\n1,1,8,0.1\n")
    done = CliRunner().invoke(
        app, ["report", str(tmp_path / "steps.csv"), "--format", "github-action-benchmark"]
    )
    assert isinstance(done.exception, RequestError)
    assert done.exception.problems[0].startswith("--format: of a results directory")
