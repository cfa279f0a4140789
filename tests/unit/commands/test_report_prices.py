"""``report --price-per-device-hour``: a study that had no price is told in money, in that report alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raybench.errors import RequestError
from raybench.machine.environment import capture
from raybench.records.store import ResultsDirectory
from raybench.study import app
from tests.support.planted import QUIET, FakeRunner
from tests.unit.studies import exactly, grid, study


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """One device takes 10 ms for 64 samples, two 12.5: 80% of two devices."""
    spec, directory = study(knobs={"batch_size": [64]}), tmp_path / "results"
    with ResultsDirectory.create(directory, spec, capture()) as store:
        for record in grid(spec, (1, 2), FakeRunner(lambda *_: exactly(0.8), QUIET))[0]:
            store.append(record)
    return directory


def costs(results: Path) -> list[float]:
    """Money for a million samples, in the rows of the table."""
    text = (results / "report" / "report.md").read_text()
    (table,) = re.findall(r"### Cost\n\n(.*?)\n\n", text, re.DOTALL)
    head, _, *rows = ([cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines())
    return [float(row[head.index("cost")].split()[0]) for row in rows] if "cost" in head else []


def test_what_it_costs_is_told_and_nothing_is_kept(results: Path) -> None:
    before = (results / "study.toml").read_bytes()
    priced = CliRunner().invoke(app, ["report", str(results), "--price-per-device-hour", "36"])
    assert priced.exit_code == 0, priced.output
    one_s, two_s = 1e6 / 64 * 0.010, 1e6 / 128 * 0.0125
    assert costs(results) == pytest.approx([one_s / 100, 2 * two_s / 100], rel=0.01)
    assert "At 36 a device-hour" in (results / "report" / "report.md").read_text()
    assert (results / "study.toml").read_bytes() == before
    assert CliRunner().invoke(app, ["report", str(results)]).exit_code == 0
    assert costs(results) == []


def test_a_file_has_no_price(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("nodes,world_size,batch_size,step_time_s\n1,1,8,0.1\n1,2,8,0.12\n")
    error = CliRunner().invoke(app, ["report", str(file), "--price-per-device-hour", "3"]).exception
    assert isinstance(error, RequestError)
    assert str(error).startswith("--price-per-device-hour: of a results directory")
