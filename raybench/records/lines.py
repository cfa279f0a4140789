"""The lines of trials.jsonl: each a record, or why it is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raybench.errors import StoreError
from raybench.records.record import SCHEMA_VERSION, TrialRecord
from raybench.spec.toml import received


class DamagedLineError(StoreError):
    """A line that is no record; whoever only reads can do without it."""


def record_of_line(path: Path, number: int, line: bytes) -> TrialRecord:
    """The record of line ``number``, from 1 on.

    Raises:
        DamagedLineError: it is no record of this version.
        StoreError: it is of another version.
    """
    try:
        record = TrialRecord.from_line(line)
    except ValueError:
        record = _looked_at(path, number, line)  # which says what is wrong with it
    if record.lacks_rounds:
        raise DamagedLineError(f"{path}: line {number} is damaged: {record.lacks_rounds}")
    return record


def _looked_at(path: Path, number: int, line: bytes) -> TrialRecord:
    try:
        data = json.loads(line)
        version = data["schema_version"]
    except (ValueError, KeyError, TypeError):
        raise DamagedLineError(f"{path}: line {number} is damaged, no record") from None
    refuse_other_version(path, version)
    try:
        return TrialRecord.from_json(data)
    except ValidationError as error:
        raise DamagedLineError(f"{path}: line {number} is damaged: {first_fault(error)}") from None


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong, with its place: "result.rounds: Field required"."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


def refuse_other_version(path: Path, version: Any) -> None:
    """Raise ``StoreError`` where ``version`` is not the schema of this raybench."""
    if isinstance(version, int) and version < SCHEMA_VERSION:
        raise StoreError(
            f"{path}: schema_version {version}, of an older raybench; this one reads {SCHEMA_VERSION}: "
            "measure again, or use the raybench that wrote it"
        )
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path}: schema_version {received(version)}, this raybench reads {SCHEMA_VERSION}; "
            "use the raybench that wrote it, or a newer one"
        )
