"""Too little memory, disk or files."""

import resource
import shutil
from collections import namedtuple

from raybench.machine import checks, host
from raybench.machine.checks import Check

Usage = namedtuple("Usage", "total used free")


def one(look):
    (only,) = look()
    return only


def test_too_little_of_everything(monkeypatch):
    monkeypatch.setattr(checks, "_WORKER_BYTES", 2**60)
    assert one(checks.memory).status == "warning"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(64 * 2**20, 0, 64 * 2**20))
    assert one(checks.shared_memory).status == "warning"
    assert [each.status for each in checks.disks()] == ["warning", "warning"]
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 4096))
    assert one(checks.open_files) == Check(
        "open files",
        "warning",
        "at most 1024 in a process, Ray needs some thousands with many workers",
        "ulimit -n 4096",
    )


def test_the_container_limit_is_told(monkeypatch):
    monkeypatch.setattr(host, "memory_limit_bytes", lambda: 512 * 2**20)
    found = one(checks.memory)
    assert "the container's limit is 512 MiB" in found.found
    assert found.status == "warning"
