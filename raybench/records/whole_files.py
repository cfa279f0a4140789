"""Files that are whole or not there, a directory that one process writes to, and why something cannot be."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from filelock import FileLock, Timeout

from raybench.errors import WRITING, StoreError, system_words

LOCK, OWNER = ".lock", ".lock-owner"


def write_synced(path: Path, content: str | bytes) -> None:
    """Write a new file; when this returns it is on the disk. Raises ``OSError``."""
    with path.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def replace_whole(path: Path, content: str | bytes) -> None:
    """Write a file that may be there: whole, or as it was. Raises ``OSError``."""
    unfinished = path.with_suffix(".unfinished")
    try:
        write_synced(unfinished, content)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def lock_directory(path: Path) -> FileLock:
    """The lock of a directory, which is released by ``unlock_directory``, or when the process dies.

    Raises:
        StoreError: another process has it.
        OSError: the directory cannot be written.
    """
    lock = FileLock(path / LOCK, thread_local=False)  # any thread may close the directory
    try:
        lock.acquire(timeout=0)
    except Timeout:
        try:
            owner = (path / OWNER).read_text().strip()
        except OSError:
            owner = ""
        raise StoreError(f"{path}: in use by {f'process {owner}' if owner else 'another process'}") from None
    try:
        (path / OWNER).write_text(f"{os.getpid()}@{socket.gethostname()}\n")
    except OSError:
        lock.release()
        raise
    return lock


def unlock_directory(path: Path, lock: FileLock) -> None:
    """Let others write to the directory. May be called twice."""
    if lock.is_locked:
        (path / OWNER).unlink(missing_ok=True)
        lock.release()


def not_written(path: Path, error: OSError) -> str:
    """Why files below ``path`` were not written: they cannot be, or else what failed while they were made."""
    if error.filename is None:
        return cannot(path, "be written", error) if error.errno in WRITING else system_words(error)
    here, named = path.absolute(), Path(os.fsdecode(error.filename)).absolute()
    if named.is_relative_to(here) or here.is_relative_to(named):
        return cannot(named, "be written", error)
    return system_words(error)


def cannot(path: Path, what: str, error: OSError) -> str:
    """Why something cannot be done with a path: "results/x: cannot be written: the disk is full"."""
    reason = (
        "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
    )
    return f"{path}: cannot {what}: {reason}"
