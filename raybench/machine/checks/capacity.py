"""Main memory, shared memory, disks and open files: whether there is enough of each."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from raybench.machine import cores
from raybench.machine import memory as main_memory
from raybench.machine.checks.check import GIB, Check, as_size
from raybench.machine.virtualization import virtualization

_MIN_OPEN_FILES = 4096  # Ray's processes and the workers' sockets; Ray itself recommends 65536
_MIN_SHARED_BYTES = GIB
_MIN_DISK_BYTES = 2 * GIB
_WORKER_BYTES = GIB  # torch, Ray and a small model in one process


def memory() -> Iterator[Check]:
    """Main memory and the container's limit."""
    total, limit = main_memory.total_memory_bytes(), main_memory.memory_limit_bytes()
    available = int(psutil.virtual_memory().available)
    text = f"{as_size(available)} available of {as_size(total)}"
    if limit is not None:
        text += f"; the container's limit is {as_size(limit)}"
        available = min(available, limit)
    wanted = _WORKER_BYTES * cores.usable_cores()
    if available < wanted:
        workers = max(1, available // _WORKER_BYTES)
        yield Check(
            "memory",
            "warning",
            f"{text}; about {as_size(_WORKER_BYTES)} is needed for each worker",
            f"python -m raybench.study scaling --world-sizes {'1' if workers < 2 else f'1,{workers}'}",
        )
    else:
        yield Check("memory", "ok", text)


def shared_memory() -> Iterator[Check]:
    """Where Ray and DataLoader processes pass data."""
    path = Path("/dev/shm")
    if not path.is_dir():
        yield Check("shared memory", "warning", "no /dev/shm: Ray's object store goes to the disk instead")
        return
    usage = shutil.disk_usage(path)
    text = f"{as_size(usage.free)} free of {as_size(usage.total)} in {path}"
    if usage.free < _MIN_SHARED_BYTES:
        in_docker = virtualization() in ("docker", "podman")
        mend = "docker run --shm-size=8g ..." if in_docker else "sudo mount -o remount,size=8G /dev/shm"
        yield Check("shared memory", "warning", f"{text}; Ray and DataLoader processes pass data there", mend)
    else:
        yield Check("shared memory", "ok", text)


def disks() -> Iterator[Check]:
    """The disk of this directory and the one of temporary files."""
    places = {"disk (here)": Path.cwd(), "disk (temp)": Path(tempfile.gettempdir())}
    for name, path in places.items():
        usage = shutil.disk_usage(path)
        text = f"{as_size(usage.free)} free of {as_size(usage.total)} in {path}"
        if not os.access(path, os.W_OK):
            mend = "python -m raybench.study scaling --output DIR" if "here" in name else "export TMPDIR=DIR"
            yield Check(name, "warning", f"{path} cannot be written", mend)
        elif usage.free < _MIN_DISK_BYTES or usage.free < 0.05 * usage.total:
            # Ray warns from 95% on, and stores nothing on the disk any more.
            yield Check(name, "warning", text, f"du -xh --max-depth=1 {path} | sort -h | tail")
        else:
            yield Check(name, "ok", text)


def open_files() -> Iterator[Check]:
    """How many files and sockets a process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _MIN_OPEN_FILES:
        most = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
        text = f"at most {soft} in a process, Ray needs some thousands with many workers"
        yield Check("open files", "warning", text, f"ulimit -n {most}")
    else:
        limit = "without limit" if soft == resource.RLIM_INFINITY else f"up to {soft} in a process"
        yield Check("open files", "ok", limit)
