"""A factory is found beside the study's file and in the current folder, whatever started raybench."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes.starting import LIMIT_S, Done, Ready
from tests.unit.commands.test_own_code import own_study

STARTED = {
    "raybench": ["-P", "-c", "import sys; sys.argv[0] = 'raybench'; from raybench.study import main; main()"],
    "python -m raybench.study": ["-m", "raybench.study"],
}


def dry(started: str, study: Path, cwd: Path) -> Done:
    return subprocess.run(
        [sys.executable, *STARTED[started], "scaling", str(study), "--dry-run", "--device", "cpu"],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=4 * LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize("started", STARTED)
def test_both_ways_to_start_find_the_same_module(started: str, tmp_path: Path) -> None:
    """Beside the study and in the current folder lies a module of the name: the study's own is taken."""
    beside, here = tmp_path / "beside", tmp_path / "here"
    study = own_study(tmp_path / "my studies", beside)
    own_study(tmp_path / "cwd", here)
    done = dry(started, study, tmp_path / "cwd")
    assert done.returncode == 0, done.stderr
    assert (beside.exists(), here.exists()) == (True, False)


def test_the_current_folder_is_searched_too(ready: Ready, tmp_path: Path) -> None:
    study, here = own_study(tmp_path / "my studies", tmp_path / "beside"), tmp_path / "here"
    own_study(tmp_path / "cwd", here)
    (study.parent / "own_model.py").unlink()
    done = ready.command("scaling", study, "--dry-run", "--device", "cpu", cwd=tmp_path / "cwd")
    assert done.returncode == 0, done.stderr
    assert here.exists()
