"""Measurements made elsewhere: a CSV file of step times, one row a measurement, checked cell by cell.

Either a ``summary.csv``, or the columns ``nodes, world_size, batch_size, step_time_s`` and optionally
those of ``OPTIONAL`` and any knob, as docs/reference.md names it.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from raybench.errors import RequestError
from raybench.records.epochs_csv import unguarded
from raybench.spec.counted import counted
from raybench.spec.knobs import Setting
from raybench.spec.toml import received
from raybench.spec.typed import read_at_most

#: nodes: number of nodes
#: world_size: number of devices
#: batch_size: samples per device; with `--scaling strong`, or where the file says so, of all devices
#: step_time_s: time from one optimizer step to the next, in s; rows of one batch and shape are repeats
REQUIRED = ("nodes", "world_size", "batch_size", "step_time_s")
#: communication_s: the part of the step that is communication; the rest is compute
#: placement: one digit a node, the devices there: `44`; else devices stand evenly on the nodes
#: model: rows of different models are fitted separately
#: device_name: rows of different devices are fitted separately
#: step_time_low_s: lower end of the step time's 95% interval
#: step_time_high_s: upper end of its interval
#: scaling: `weak` or `strong`, what `batch_size` means; `--scaling` must not contradict it
OPTIONAL = (
    "communication_s",
    "placement",
    "model",
    "device_name",
    "step_time_low_s",
    "step_time_high_s",
    "scaling",
)
COMPARED_ROLES = ("scaling", "search")  # of a summary.csv: trials of the study's own questions
LONGEST_CSV_BYTES = 256 * 2**20  # a summary.csv has some hundred bytes a trial
MOST_DEVICES, MOST_SAMPLES = 10**6, 10**12
LEAST_S, MOST_S = 1e-9, 1e7  # of a step: what lies outside is in another unit
MOST_FAULTS = 5  # lines of an answer; further ones are counted
_KNOBS = tuple(name for name in Setting.model_fields if name not in ("batch_size", "gradient_accumulation"))
_SUMMARY = ("trial_id", "role", "state")  # what only a summary.csv has
_COMPUTE = ("ideal_s", "small_batch_s", "contention_s")  # of a summary.csv: what all devices compute at once
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class MeasuredRow:
    """One measurement; None and empty where the file does not say."""

    line: int
    model: str
    context: tuple[tuple[str, str], ...]  # device, input and study: what is never fitted together
    setting: tuple[tuple[str, str], ...]  # knobs and variables but the batch
    scaling: Literal["weak", "strong"] | None
    nodes: int
    world_size: int
    workers: tuple[int, ...]  # on each node, where the placement says so
    placement: str
    batch_size: int  # per device, under strong scaling of all devices
    global_batch_size: int | None  # of a summary.csv
    gradient_accumulation: int
    step_time_s: float
    step_time_low_s: float | None
    step_time_high_s: float | None
    rounds: int | None
    communication_s: float | None
    compute_s: float | None
    energy_joules: float | None  # of all devices, for one step
    role: str = ""


@dataclass(frozen=True)
class MeasuredTable:
    """The rows of a file that are measurements of steps, and what of it is none."""

    path: Path
    is_summary: bool
    rows: tuple[MeasuredRow, ...]
    notes: tuple[str, ...]  # rows and columns that were left out, in words


class _CellError(ValueError):
    """A cell breaks its column's rule."""

    def __init__(self, column: str, rule: str, value: str) -> None:
        super().__init__(f"{column}: {rule} (received {received(value) if value else 'nothing'})")


def read_measured_csv(path: Path) -> MeasuredTable:
    """The measurements of a file.

    Raises:
        RequestError: a line for each fault (at most six): the line of the file, the column, the rule and the
            value received; or that it is no such file.
    """
    lines = _cells_of(path)
    header_line, header = lines[0]
    _check_header(path, header_line, header)
    is_summary = all(name in header for name in _SUMMARY)
    faults, rows, skipped = list[str](), list[MeasuredRow](), Counter[str]()
    for number, cells in lines[1:]:
        if len(cells) != len(header):
            told = f"{len(cells)} cells under {len(header)} columns, a torn line or a comma in a number"
            faults.append(f"{path}: line {number}: {told} (received {received(','.join(cells))})")
            continue
        if cells == header:
            faults.append(f"{path}: line {number}: the header again, in the middle of the file")
            continue
        named = dict(zip(header, cells, strict=True))
        why = _no_measurement(named) if is_summary else ""
        if why:
            skipped[why] += 1
            continue
        try:
            rows.append(_row(path, number, header, named, is_summary))
        except _CellError as error:
            faults.append(f"{path}: line {number}: {error}")
    if faults:
        more = len(faults) - MOST_FAULTS
        raise RequestError(
            *faults[:MOST_FAULTS], *([f"and {more} more lines like these"] if more > 0 else [])
        )
    if not rows:
        told = f": {_counted(skipped)}" if skipped else ", the header alone"
        raise RequestError(f"{path}: at least one measured step (received none{told})")
    unread = [] if is_summary else [name for name in header if name not in _read_columns()]
    notes = [f"left out of {path.name}: {_counted(skipped)}"] if skipped else []
    notes += [f"columns that were not read: {', '.join(unread)}"] if unread else []
    return MeasuredTable(path, is_summary, tuple(rows), tuple(notes))


def _read_columns() -> tuple[str, ...]:
    return (*REQUIRED, *OPTIONAL, *_KNOBS, "gradient_accumulation")


def _counted(skipped: Mapping[str, int]) -> str:
    words = [f"{counted(number, 'row')} {why}" for why, number in skipped.items()]
    return ", ".join(words)


def _cells_of(path: Path) -> list[tuple[int, list[str]]]:
    """The file's cells with their line's number, the header first, without empty lines."""
    try:
        content = read_at_most(path, LONGEST_CSV_BYTES)
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{path}: not UTF-8: the byte {content[error.start]:#04x} at place {error.start}"
        ) from None
    if "\0" in text:
        raise RequestError(f"{path}: no CSV file, there are zero bytes in it")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    lines = []
    try:
        for cells in reader:
            stripped = [unguarded(cell.strip()) for cell in cells]
            if any(stripped):
                lines.append((reader.line_num, stripped))
    except csv.Error as error:
        raise RequestError(f"{path}: line {reader.line_num}: no CSV: {error}") from None
    if not lines:
        raise RequestError(f"{path}: empty: the columns {', '.join(REQUIRED)} are needed")
    return lines


def _check_header(path: Path, line: int, header: Sequence[str]) -> None:
    twice = [name for name, number in Counter(header).items() if number > 1]
    if twice:
        raise RequestError(f"{path}: line {line}: each column once (received {received(twice[0])} twice)")
    missing = [name for name in REQUIRED if name not in header]
    if not missing:
        return
    first = ",".join(header)
    for separator, name in _SEPARATORS.items():
        if separator in first and "step_time" in first:
            raise RequestError(f"{path}: line {line}: columns separated by commas (received {name})")
    columns = "columns missing" if len(missing) > 1 else "column missing"
    raise RequestError(
        f"{path}: line {line}: {columns}: {', '.join(missing)} (received {', '.join(header[:12])}"
        f"{', ...' if len(header) > 12 else ''})"
    )


def _no_measurement(named: Mapping[str, str]) -> str:
    """Why a row of a summary.csv is not a step to predict from; empty where it is."""
    if named["state"] != "complete":
        return f"that ended {named['state']}"
    if named["role"] not in COMPARED_ROLES:
        return f"of the role {named['role']}"
    if not named["step_time_s"]:
        return "without a step time"
    return "oversubscribed: more workers than cores" if named.get("oversubscribed") == "true" else ""


def _row(
    path: Path, line: int, header: Sequence[str], named: Mapping[str, str], is_summary: bool
) -> MeasuredRow:
    world_size, nodes = _whole(named, "world_size", MOST_DEVICES), _nodes(named, is_summary)
    if nodes > world_size:
        raise _CellError("nodes", f"at most world_size, {world_size}", named["nodes"])
    step_s = _above_0(named, "step_time_s")
    low_s, high_s = _interval(named, step_s)
    communication_s = _communication(named, step_s)
    parts = {name: _number(named, name) for name in _COMPUTE}
    divided = is_summary and parts["ideal_s"] is not None and parts["contention_s"] is not None
    compute_s = sum(part or 0.0 for part in parts.values()) if divided else None
    placement = named.get("placement", "")
    return MeasuredRow(
        line=line,
        model=named.get("model", "") or path.stem,
        context=tuple((name, named.get(name, "")) for name in ("device_name", "input", "study")),
        setting=tuple((name, named[name]) for name in _settings(header, is_summary)),
        scaling=_scaling(named) if is_summary or named.get("scaling") else None,
        nodes=nodes,
        world_size=world_size,
        workers=() if is_summary else _workers(placement, world_size, nodes),
        placement=placement,
        batch_size=_batch_size(named, is_summary),
        global_batch_size=_whole(named, "global_batch_size") if named.get("global_batch_size") else None,
        gradient_accumulation=_whole(named, "gradient_accumulation")
        if named.get("gradient_accumulation")
        else 1,
        step_time_s=step_s,
        step_time_low_s=low_s,
        step_time_high_s=high_s,
        rounds=_whole(named, "rounds") if is_summary and named.get("rounds") else None,
        communication_s=communication_s,
        compute_s=compute_s if compute_s and compute_s > 0 else None,
        energy_joules=_number(named, "energy_joules") if is_summary else None,
        role=named.get("role", ""),
    )


def _batch_size(named: Mapping[str, str], is_summary: bool) -> int:
    """As the study has it: an older summary.csv has that of one device under strong scaling."""
    is_of_all = is_summary and named.get("scaling") == "strong" and named.get("global_batch_size")
    return _whole(named, "global_batch_size" if is_of_all else "batch_size")


def _settings(header: Sequence[str], is_summary: bool) -> list[str]:
    """The columns that say how a step was run: knobs, and in a summary.csv what varies between its rows."""
    varying: Iterable[str] = ()
    if is_summary and {"gradient_compression", "step_time_s"} <= set(header):
        varying = header[header.index("gradient_compression") + 1 : header.index("step_time_s")]
    return [name for name in header if name in _KNOBS or name in set(varying)]


def _scaling(named: Mapping[str, str]) -> Literal["weak", "strong"]:
    word = named.get("scaling", "")
    if word == "weak":
        return "weak"
    if word == "strong":
        return "strong"
    raise _CellError("scaling", "weak or strong", word)


def _nodes(named: Mapping[str, str], is_summary: bool) -> int:
    """A summary.csv leaves the nodes empty where nobody told them: then it was one."""
    return 1 if is_summary and not named["nodes"] else _whole(named, "nodes", MOST_DEVICES)


def _workers(placement: str, world_size: int, nodes: int) -> tuple[int, ...]:
    """Of a placement such as 44, one digit a node; none where it is a word."""
    if not (placement.isascii() and placement.isdecimal()):
        return ()
    workers = tuple(int(digit) for digit in placement)
    if 0 in workers or sum(workers) != world_size or len(workers) != nodes:
        rule = f"a digit for each of {nodes} nodes, {world_size} in sum"
        raise _CellError("placement", rule, placement)
    return tuple(sorted(workers, reverse=True))


def _interval(named: Mapping[str, str], step_s: float) -> tuple[float | None, float | None]:
    low_s, high_s = _number(named, "step_time_low_s"), _number(named, "step_time_high_s")
    if low_s is None or high_s is None:
        return None, None
    if not LEAST_S <= low_s <= step_s * (1 + 1e-6):
        raise _CellError("step_time_low_s", "above 0 and at most step_time_s", named["step_time_low_s"])
    if not step_s * (1 - 1e-6) <= high_s <= MOST_S:
        raise _CellError("step_time_high_s", "at least step_time_s", named["step_time_high_s"])
    return low_s, high_s


def _communication(named: Mapping[str, str], step_s: float) -> float | None:
    communication_s = _number(named, "communication_s")
    if communication_s is not None and not 0 <= communication_s < step_s:
        raise _CellError(
            "communication_s", "at least 0 and below step_time_s, a part of it", named["communication_s"]
        )
    return communication_s


def _number(named: Mapping[str, str], column: str) -> float | None:
    """A finite number; None where the column is not there or the cell is empty."""
    text = named.get(column, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise _CellError(column, "a number", text) from None
    if not math.isfinite(value):
        raise _CellError(column, "a finite number", text)
    return value


def _above_0(named: Mapping[str, str], column: str) -> float:
    value = _number(named, column)
    if value is None or value <= 0:
        raise _CellError(column, "a time above 0, in s", named[column])
    if not LEAST_S <= value <= MOST_S:
        raise _CellError(column, f"between {LEAST_S:g} and {MOST_S:g} s", named[column])
    return value


def _whole(named: Mapping[str, str], column: str, most: int = MOST_SAMPLES) -> int:
    """A whole number above 0; 4.0 is one too, as pandas writes columns with gaps."""
    try:
        value = _number(named, column)
    except _CellError:
        value = None
    if value is None or value < 1 or value != int(value):
        raise _CellError(column, "a whole number above 0", named[column])
    if value > most:
        raise _CellError(column, f"at most {most:,}", named[column])
    return int(value)
