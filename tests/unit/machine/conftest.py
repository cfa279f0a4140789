"""Control groups made of files of one's own."""

import os
from pathlib import Path

import pytest

from raybench.machine import host


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """Lays out control groups of this process, on a machine with eight cores."""

    def lay(files, line="0::/a/b"):
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        read = host.read
        fake = {Path("/proc/self/cgroup"): line}
        monkeypatch.setattr(host, "CONTROL_GROUPS", tmp_path)
        monkeypatch.setattr(host, "read", lambda path: fake[path] if path in fake else read(path))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))

    return lay
