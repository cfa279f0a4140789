"""Batch files are shell scripts."""

from __future__ import annotations

import subprocess

from tests.processes.starting import LIMIT_S
from tests.unit.test_deploy import BATCH_FILES


def test_batch_files_are_shell_scripts() -> None:
    each = 'for file; do bash -n "$file" || exit 1; done'
    command = ["bash", "-c", each, "bash", *map(str, BATCH_FILES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
