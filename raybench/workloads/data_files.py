"""The files of data sets under ``--data``, and what is made of them (arrays, a tokenizer): cached.

It is stored in ``$XDG_CACHE_HOME/raybench`` (``~/.cache/raybench``), in folders named by the files' sizes
and times of change: changed files get a new folder.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raybench.errors import RequestError


def candidate_folders(data: Path | None, name: str) -> list[Path]:
    """Where a data set may lie: the folder of its name in ``data``, then ``data``, which may hold others."""
    return [] if data is None else [data / name, data]


def damaged(file: Path, why: str) -> RequestError:
    """What is said of a file that cannot be read."""
    return RequestError(f"data: {file} is damaged: {why}; put a good copy there")


def sample_count(length: int, count: int | None, split: str) -> int:
    """``count`` of ``length`` samples of the ``split``, or all; ``RequestError`` where there are fewer."""
    if count is not None and count > length:
        field = "samples" if split == "train" else "test_samples"
        raise RequestError(f"workload.{field}: at most the {length} samples there are (received {count})")
    return length if count is None else count


def evenly_spread(length: int, count: int | None, split: str) -> Sequence[int]:
    """So many places, evenly spread: some files are sorted by class."""
    number = sample_count(length, count, split)
    return range(length) if number == length else [place * length // number for place in range(number)]


class MappedArrays:
    """Arrays in a folder of the cache, mapped into memory, read-only; a pickle has only where they are."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder, self._names = folder, names

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """In the order of their names."""
        return tuple(np.load(self.folder / f"{name}.npy", mmap_mode="r") for name in self._names)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "arrays"}


CACHE_FORMAT = 1  # of what is stored: another number, another folder


def cache_directory() -> Path:
    """``$XDG_CACHE_HOME/raybench``, else ``~/.cache/raybench``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "raybench"


def key(files: Sequence[Path], *more: Any) -> str:
    """A name for what is made of ``files`` with the settings ``more``.

    Raises ``RequestError`` for a file that is not there.
    """
    versions = []
    for file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise RequestError(f"data: {file}: {error.strerror}; the data set is not complete") from error
        versions.append((file.name, stat.st_size, stat.st_mtime_ns))
    return hashlib.sha256(repr((CACHE_FORMAT, versions, *more)).encode()).hexdigest()[:16]


def stored(name: str, write: Callable[[Path], None]) -> Path:
    """The folder ``name`` of the cache. Where it is not there ``write`` fills one: safe in many processes.

    Raises ``RequestError`` for a cache that cannot be written.
    """
    cache = cache_directory()
    folder = cache / name
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=cache) as temporary:
            made = Path(temporary, name)
            made.mkdir()
            write(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster
                    raise
    except OSError as error:
        raise RequestError(
            f"data: the cache of data sets cannot be written: {error.strerror or error}; XDG_CACHE_HOME "
            f"names another place (received {cache})"
        ) from error
    return folder
