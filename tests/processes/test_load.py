"""A study's file that its user may not read."""

from __future__ import annotations

from pathlib import Path

from tests.processes.starting import Ready

NOBODY = 65534
READS = """
import os, sys
from raybench.errors import RequestError
from raybench.spec.load import load_study
from pathlib import Path
if os.geteuid() == 0:  # who may read everything
    os.setgroups([])
    os.setgid({nobody})
    os.setuid({nobody})
try:
    load_study(Path(sys.argv[1]))
except RequestError as refused:
    print(*refused.problems, sep="\\n")
"""


def test_a_file_that_may_not_be_read(ready: Ready, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("")
    path.chmod(0)
    tmp_path.chmod(0o755)  # who is not root gets as far as the file
    done = ready.run(READS.format(nobody=NOBODY), path.name)
    assert (done.stdout, done.stderr) == (f"{path.name}: cannot be read: Permission denied\n", "")
