"""The notebook runs from its first cell to its last, on the study that its first cell asks for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT
from tests.studies.briefly import BRIEFLY
from tests.support.forked import ForkedCommand

NOTEBOOK = ROOT / "notebooks" / "reading_a_study.ipynb"


def texts(notebook: nbformat.NotebookNode) -> str:
    """Everything that the cells printed or showed as text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join("".join(text) for text in shown)


@pytest.mark.promise("notebook")
def test_it_reads_the_study_that_it_asks_for(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYBENCH_DATA", str(data_dir))
    monkeypatch.setenv("RAYBENCH_OUTPUT", str(tmp_path / "results"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    asked: list[list[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
        exec(compile(first.source, "first cell", "exec"), {})
    (words,) = asked
    assert words[1:4] == ["-m", "raybench.study", "scaling"]
    done = ForkedCommand(*words[3:], *BRIEFLY, folder=tmp_path)
    assert done.wait() == 0, done.output
    assert done.survivors(10) == []

    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = texts(notebook)
    assert re.search(r"2 devices (?:train|are slower) ", shown)
    assert "dp: invalid: strategy dp exists on GPUs only" in shown
    for strategy in ("single", "ddp", "fsdp"):
        assert strategy in shown
    assert "speed-up" in shown
    assert "MiB buckets" in shown  # what if
    drawn = [
        o for cell in notebook.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})
    ]
    assert len(drawn) == 1
