"""The notebook's code cells, run on a study on fake hardware."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

from raybench.analysis.simulate.what_if import study_what_if
from raybench.errors import RequestError
from raybench.machine.environment import Environment
from raybench.records.store import ResultsDirectory
from tests.conftest import ROOT
from tests.unit.analysis.simulate.planted import trial
from tests.unit.studies import asked, failed, grid, study

NOTEBOOK = ROOT / "notebooks" / "reading_a_study.ipynb"
ENVIRONMENT = Environment(
    hostname="here", os="Linux", kernel="6", cpu_model="a CPU", cores=2, usable_cores=2,
    memory_bytes=8 * 2**30, python="3.12.1", packages={},
)  # fmt: skip


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run(cells: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], list[str]]:
    """The names that the cells leave, and what each of them printed."""
    names: dict[str, Any] = {}
    printed = []
    for number, cell in enumerate(cells):
        exec(compile(cell, f"code cell {number}", "exec"), names)
        printed.append(capsys.readouterr().out)
    return names, printed


@pytest.fixture
def results_directory(tmp_path: Path) -> Path:
    """Strategies on one device and on two; DataParallel is not to be had."""
    spec = study(knobs={"strategy": ["single", "ddp", "fsdp"]})
    records, step_times = grid(spec, (1, 2))
    dp = spec.knobs.default().model_copy(update={"strategy": "dp"})
    path = tmp_path / "results"
    with ResultsDirectory.create(path, spec, ENVIRONMENT) as directory:
        for record in records:
            directory.append(record, step_times[record.trial_id])
        directory.append(failed(asked(spec, "scaling", dp, 2), "invalid", "strategy dp exists on GPUs only"))
    return path


def test_every_cell_reads_a_results_directory(
    results_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAYBENCH_OUTPUT", str(results_directory))
    with mpl.rc_context():
        mpl.use("agg")
        import matplotlib.pyplot as plt

        drawn: list[int] = []
        monkeypatch.setattr(plt, "show", lambda: drawn.extend(plt.get_fignums()))
        names, printed = run(code_cells(), capsys)
        plt.close("all")
    reasons, asked_nothing, speedup = (text for text in printed if text)
    assert "strategy dp exists on GPUs only" in reasons
    assert asked_nothing == "what if: no trial was divided into parts\n"  # simulated trials have no gradients
    assert names["results"].answer.startswith("2 devices ")
    assert (names["more"].low_s < names["more"].measured_s).all()
    assert (names["more"].measured_s < names["more"].high_s).all()
    assert speedup.startswith("speed-up ")
    assert len(drawn) == 1
    assert set(names["measured"].strategy) == {"single", "ddp", "fsdp"}
    assert len(names["ratios"]) == names["estimate"].n >= 2
    assert {"plain", "ddp"} <= set(names["steps"].variant)


def test_what_if_takes_the_studys_own_fit(tmp_path: Path) -> None:
    """As one that had the trial twice, whose intervals were too narrow."""
    with ResultsDirectory.create(tmp_path / "results", study(), ENVIRONMENT) as directory:
        directory.append(trial())
    names: dict[str, Any] = {"OUTPUT": tmp_path / "results", "pd": pd}
    (cell,) = [each for each in code_cells() if "what_if" in each]
    exec(compile(cell, "a cell", "exec"), names)
    said = study_what_if(names["found"])
    assert said is not None
    step_s, shown = said.points[0].step_time_s, names["predicted"]
    assert (shown.low_ms[0], shown.high_ms[0]) == pytest.approx((1000 * step_s.low, 1000 * step_s.high))


def test_the_write_ups_table_has_its_modes(results_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYBENCH_OUTPUT", str(results_directory))
    names: dict[str, Any] = {}
    first, *_, last = [cell for cell in code_cells() if "MODES" in cell or "raybench.run(" in cell]
    for cell in (first, last.replace("pd.DataFrame(\n", "table = pd.DataFrame(\n")):
        exec(compile(cell, "a cell", "exec"), names)
    table = names["table"].set_index("Mode")
    assert list(table.index) == ["Single", "DP", "DDP", "FSDP"]
    assert list(table) == ["Avg epoch time", "Speed-up of a step", "Efficiency of a step"]
    assert table["Speed-up of a step"]["Single"] == "1.00x"
    assert table["Speed-up of a step"]["DP"] == table["Avg epoch time"]["DDP"] == "-"  # not measured here
    assert re.fullmatch(r"\d+% \[\d+%, \d+%\]", table["Efficiency of a step"]["FSDP"])


def test_the_first_cell_lacks_nothing_but_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYBENCH_OUTPUT", str(tmp_path / "results"))
    monkeypatch.setenv("RAYBENCH_DATA", str(tmp_path))
    with pytest.raises(RequestError) as error:
        exec(compile(code_cells()[0], "first cell", "exec"), {})
    assert [problem.split(":")[0] for problem in error.value.problems] == ["data"]  # which is not there
