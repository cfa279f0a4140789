"""The first line of a CSV file, and the columns of a parquet file."""

from __future__ import annotations

import csv
from pathlib import Path

from raybench.errors import RequestError
from raybench.workloads.data_files import damaged, first_line


def first_row(file: Path) -> list[str]:
    """The fields of a CSV file's first line; raises ``RequestError`` for an empty or damaged file."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            first = next(csv.reader(lines), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise damaged(file, first_line(error)) from error
    if not first:
        raise RequestError(f"data: {file}: rows of text (received an empty file)")
    return first


def parquet_columns(file: Path) -> list[str]:
    """The names of the columns; raises ``RequestError`` for an empty or damaged file."""
    import pyarrow
    from pyarrow import parquet

    if not file.stat().st_size:
        raise RequestError(f"data: {file}: rows of text (received an empty file)")
    try:
        return list(parquet.read_schema(file).names)
    except (pyarrow.ArrowException, OSError) as error:
        raise damaged(file, first_line(error)) from error
