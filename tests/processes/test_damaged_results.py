"""Reports of results on a disk that takes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raybench import study as study_command
from tests.processes.starting import LIMIT_S
from tests.support.answers import answer_of
from tests.support.planted.faults import read_only, small_disk
from tests.unit.commands.test_compare import planted


def test_a_disk_that_takes_nothing_is_a_line(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64m") as is_small:
        if not is_small:
            pytest.skip("no disk of its own without the right to mount one")
        disk = tmp_path / "disk"
        first = planted(disk, "first", 0.01)
        second = Path(shutil.copytree(first, disk / "second"))
        with read_only(disk) as is_read_only:
            if not is_read_only:
                pytest.skip("no right to mount a disk read-only")
            reported = answer_of(study_command.main, ["report", str(first)], LIMIT_S)
            compared = answer_of(study_command.main, ["compare", str(first), str(second)], LIMIT_S)
            written = answer_of(
                study_command.main, ["compare", str(first), str(second), "--output", f"{disk}/new"], LIMIT_S
            )
    assert (reported.code, reported.errors) == (
        2,
        f"{first}: {first}/report: Read-only file system; the records are as they were\n",
    )
    assert "devices" in reported.output  # what it says is said all the same
    assert (compared.code, compared.errors) == (0, "")  # it writes nothing
    assert (written.code, written.errors) == (
        2,
        f"{disk}/new: Read-only file system\n",
    )
