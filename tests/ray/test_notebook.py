"""The notebook runs from its first cell to its last, on a study that it runs itself."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "reading_a_study.ipynb"


def texts(notebook: nbformat.NotebookNode) -> str:
    """Everything that the cells printed or showed as text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join("".join(text) for text in shown)


def test_it_runs_a_study_and_reads_it(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYBENCH_DATA", str(data_dir))
    monkeypatch.setenv("RAYBENCH_OUTPUT", str(tmp_path / "results"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = texts(notebook)
    assert "2 devices:" in shown
    assert "dp: invalid: strategy dp exists on GPUs only" in shown
    for strategy in ("single", "ddp", "fsdp"):
        assert strategy in shown
    assert "speed-up" in shown
    assert "MiB buckets" in shown  # what if
    drawn = [
        o for cell in notebook.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})
    ]
    assert len(drawn) == 1
