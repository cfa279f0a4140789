"""Writing a report's files: each is whole at any moment."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write beside the place, then move: a reader finds the old file or the new one, never half of one.

    An ``OSError`` names ``path``, and no file beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write_and_move(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        error.filename = str(path)
        raise
    return path


def _write_and_move(path: Path, data: bytes) -> None:
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(unfinished).chmod(0o644)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def remove_old_plots(folder: Path, names: Collection[str]) -> None:
    """Remove all but ``names``: a plot of an earlier report would be taken for one of this."""
    for path in folder.glob("*") if folder.is_dir() else ():
        if path.suffix in (".png", ".svg") and path.name not in names:
            path.unlink()
