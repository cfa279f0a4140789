"""The files of data sets: where they may lie under ``--data``, and what is said of those that are damaged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from raybench.errors import RequestError


def candidate_folders(data: Path | None, *names: str) -> list[Path]:
    """Where a data set of one of these names may lie: ``data`` itself, and its folders of that name."""
    return [] if data is None else [data, *(data / name for name in names)]


def file_stats(files: Sequence[Path]) -> list[tuple[Path, os.stat_result]]:
    """The files' sizes and times; raises ``RequestError`` for one that is not there."""
    checked = []
    for file in files:
        try:
            checked.append((file, file.stat()))
        except OSError as error:
            raise RequestError(f"data: {file}: {error.strerror}; the data set is not complete") from error
    return checked


def damaged(file: Path, why: str) -> RequestError:
    """What is said of a file that cannot be read."""
    return RequestError(f"data: {file} is damaged: {why}; put a good copy there")


def first_line(error: Exception) -> str:
    """What an error says, without the paragraphs that follow."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
