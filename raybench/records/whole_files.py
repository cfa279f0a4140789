"""Files that are whole or not there, a directory that one process writes to, and why something cannot be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from raybench.errors import StoreError

LOCK = ".lock"
UNFINISHED = ".unfinished-"  # before the name of a directory that is being written


Content = str | bytes | Callable[[BinaryIO], object]  # a function writes to the file that it is given


def write_synced(path: Path, content: Content) -> None:
    """Write a new file; when this returns it is on the disk. Raises ``OSError``."""
    with path.open("wb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def replace_whole(path: Path, content: Content) -> None:
    """Write a file that may be there: whole, or as it was. Raises ``OSError``, which names ``path``."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        write_synced(unfinished, content)
        unfinished.replace(path)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def replace_directory(place: Path, write: Callable[[Path], object]) -> None:
    """``write`` fills a directory that takes the place of ``place`` when all of it is on the disk.

    Raises what ``write`` raises; what was at ``place`` is then still there.
    """
    unfinished = place.with_name(f"{UNFINISHED}{place.name}")
    if unfinished.exists():  # of a process that was killed
        shutil.rmtree(unfinished)
    unfinished.mkdir(parents=True)
    write(unfinished)
    for path in (*unfinished.rglob("*"), unfinished):
        _sync(path)
    if place.exists():  # of a trial that is being tried again
        shutil.rmtree(place)
    unfinished.rename(place)
    _sync(place.parent)


def _sync(path: Path) -> None:
    """A file is on the disk only when its data are, and its name only when its directory is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_directory(path: Path) -> FileLock:
    """The lock of a directory, held until its ``release``, or until the process dies.

    Raises:
        StoreError: another process has it.
        OSError: the directory cannot be written.
    """
    lock = FileLock(path / LOCK, thread_local=False)  # any thread may close the directory
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise StoreError(f"{path}: in use by another process") from None
    return lock


def cannot(path: Path, what: str, error: OSError) -> str:
    """Why something cannot be done with a path: "results/x: cannot be written: No space left on device"."""
    return f"{path}: cannot {what}: {error.strerror or error}"
