"""The notebook runs from its first cell to its last, on the study that its first cell asks for."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT
from tests.studies.briefly import IN_A_KERNEL
from tests.support import budget

NOTEBOOK = ROOT / "notebooks" / "reading_a_study.ipynb"


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def text_of(output: nbformat.NotebookNode) -> str:
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))


def texts(notebook: nbformat.NotebookNode) -> str:
    """Everything that the cells printed or showed as text."""
    return "\n".join(map(text_of, outputs(notebook)))


@pytest.mark.promise("notebook")
def test_it_runs_the_study_and_reads_it(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"DATA": data_dir, "OUTPUT": tmp_path / "results"}.items():
        monkeypatch.setenv(f"RAYBENCH_{name}", str(value))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    budget.took(budget.STUDIES)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with it a kernel's streams are others
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(IN_A_KERNEL))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = texts(notebook)
    assert "\x1b" not in shown
    assert (tmp_path / "results" / "report" / "report.html").is_file()
    assert re.search(r"2 devices (?:train|are slower) ", shown)
    assert "strategy dp exists on GPUs only" in shown
    table = next(text for text in map(text_of, outputs(notebook)) if "Scaling efficiency" in text)
    for mode in ("Single", "DP", "DDP", "FSDP"):
        assert mode in table
    assert re.search(r"DDP +[\d.]+ s +[\d.]+x +\d+% \[\d+%, \d+%\]", table), table
    assert "speed-up" in shown
    assert "MiB buckets" in shown  # what if
    assert len([each for each in outputs(notebook) if "image/png" in each.get("data", {})]) == 1
    (page,) = [
        each for each in outputs(notebook) if "raybench-results" in each.get("data", {}).get("text/html", "")
    ]
    assert "Scaling" in page["data"]["text/html"]
