from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.planted.faults import full, kill_one, read_only, small_disk, stop_one


@pytest.fixture
def sleeping() -> Iterator[psutil.Process]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield psutil.Process(process.pid)
        process.kill()


def test_a_process_is_stopped_then_killed(sleeping: psutil.Process) -> None:
    draw = random.Random(0)
    assert stop_one([sleeping], draw)
    assert sleeping.status() == psutil.STATUS_STOPPED
    assert kill_one([sleeping], draw)
    assert not stop_one([], draw)
    assert not kill_one([], draw)


def test_a_disk_is_full_then_read_only_and_takes_everything_afterwards(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "2m") as is_small:
        if not is_small:
            pytest.skip("no small disk without the right to mount one")
        kept, more = tmp_path / "disk" / "kept", tmp_path / "disk" / "more"
        kept.write_bytes(b"kept")
        with full(tmp_path / "disk") as is_full:
            assert is_full
            with pytest.raises(OSError, match="No space left"):
                more.write_bytes(bytes(5000))
        more.write_bytes(bytes(2**20))
        with read_only(tmp_path / "disk") as is_read_only:
            if not is_read_only:
                pytest.skip("no right to mount a disk read-only")
            with pytest.raises(OSError, match="Read-only file system"):
                more.write_bytes(b"more")
        more.write_bytes(b"more")
        assert kept.read_bytes() == b"kept"
    assert list((tmp_path / "disk").iterdir()) == []
