"""A directory that is whole or not there at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def write_whole(place: Path, unfinished: Path, write: Callable[[Path], None]) -> None:
    """``write`` fills ``unfinished``, beside ``place``; it takes its place when all of it is on the disk.

    Raises what ``write`` raises; what was at ``place`` is then still there.
    """
    if unfinished.exists():  # of a process that was killed
        shutil.rmtree(unfinished)
    unfinished.mkdir(parents=True)
    write(unfinished)
    for path in unfinished.rglob("*"):
        _sync(path)
    _sync(unfinished)
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
