"""summary.tex compiles, whatever stands in its cells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from raybench.report import render
from raybench.report.table import Column, Table

EVERY = "\\ & % $ # _ { } ~ ^ < > | ± × µ – · … → ≥ ≤ ä ß é \" ' ` 中"
PAGE = r"""\documentclass{article}
\usepackage{booktabs}
\begin{document}
\input{summary.tex}
\end{document}
"""


def test_special_characters_compile(tmp_path: Path) -> None:
    latex = shutil.which("pdflatex")
    if latex is None:
        pytest.skip("no pdflatex (Debian: apt-get install texlive-latex-base texlive-latex-recommended)")
    columns, rows = (Column(EVERY), Column("n", right=True)), ((EVERY, "1"), ("a", "2"))
    table = Table("T", f"A caption with {EVERY}", columns, rows)
    (tmp_path / "summary.tex").write_text(render.to_tex(table, "a_study & more"))
    (tmp_path / "page.tex").write_text(PAGE)
    command = [latex, "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "page.pdf").stat().st_size > 1000
