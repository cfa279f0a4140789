"""The command as it is typed, in a process of its own; what it answers is asked in unit/commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.starting import LIMIT_S, Ready


@pytest.mark.promise("exit 2")
def test_a_wrong_option_through_the_interpreters_own_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "raybench.study", "scaling", "--dry-run", "--batch-sizes", "256,0"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'knobs.batch_size[1]: a whole number above 0 or "max" (received 0)\n'


def test_a_factory_that_fails_is_a_line_before_anything_starts(tmp_path: Path, ready: Ready) -> None:
    """What else it may do is asked in unit/workloads/test_user_code.py and test_child.py."""
    (tmp_path / "mine.py").write_text("def build():\n    raise OSError('no such weights')\n")
    (tmp_path / "own.toml").write_text('name = "own"\n[workload]\nfactory = "mine:build"\n')
    done = ready.command("scaling", "--dry-run", "--device", "cpu", "own.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("workload.factory: mine:build raised OSError: no such weights")


def test_an_output_that_is_full_is_a_line(ready: Ready) -> None:
    onto_a_full_disk = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
    done = ready.run(f"{onto_a_full_disk}from raybench.study import main; main()", "list")
    assert (done.returncode, done.stderr) == (2, "this cannot continue: No space left on device\n")
