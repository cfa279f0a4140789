"""Measurements made elsewhere: a CSV file of step times, one row a measurement, checked cell by cell.

Either a ``summary.csv``, or the columns ``nodes, world_size, batch_size, step_time_s`` and optionally
those of ``OPTIONAL`` and any knob, as docs/reference.md names it.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from raybench.errors import RequestError
from raybench.records.base import Count, Difference, Duration, Frozen, Workers, checked
from raybench.records.requests import COMPARED_ROLES
from raybench.spec.knobs import Setting
from raybench.spec.plural import plural
from raybench.spec.user_input import received

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
#: mean_step_time_s: mean over all steps, of which totals are made; else `step_time_s`
#: scaling: `weak` or `strong`, what `batch_size` means; `--scaling` must not contradict it
OPTIONAL = (
    "communication_s",
    "placement",
    "model",
    "device_name",
    "step_time_low_s",
    "step_time_high_s",
    "mean_step_time_s",
    "scaling",
)
_KNOBS = tuple(name for name in Setting.model_fields if name not in ("batch_size", "gradient_accumulation"))
_SUMMARY = ("trial_id", "role", "state")  # what only a summary.csv has
_READ = (*REQUIRED, *OPTIONAL, "gradient_accumulation")
_MADE = ("workers", "context", "setting")  # fields of a row that are no cells
_CONTEXT = ("device_name", "input", "study")  # what is never fitted together; of another file the first

# of a step: what lies outside is in another unit
StepTime = Annotated[float, Field(ge=1e-9, le=1e7, allow_inf_nan=False)]
Scaling = Literal["weak", "strong"]


class MeasuredRow(Frozen):
    """One measurement; None and empty where the file does not say."""

    model: str
    context: tuple[tuple[str, str], ...]
    setting: tuple[tuple[str, str], ...]  # knobs and variables but the batch
    nodes: Workers
    world_size: Workers
    batch_size: Count  # per device, under strong scaling of all devices
    step_time_s: StepTime
    step_time_low_s: StepTime | None = None
    step_time_high_s: StepTime | None = None
    mean_step_time_s: StepTime | None = None
    communication_s: Duration | None = None
    scaling: Scaling | None = None
    placement: str = ""
    workers: tuple[int, ...] = ()  # on each node, where the placement says so
    gradient_accumulation: Count = 1
    # of a summary.csv
    rounds: Count | None = None
    global_batch_size: Count | None = None
    ideal_s: Difference | None = None
    small_batch_s: Difference = 0.0
    contention_s: Difference | None = None

    @property
    def compute_s(self) -> float | None:
        """What all devices compute at once, in s."""
        if self.ideal_s is None or self.contention_s is None:
            return None
        compute_s = self.ideal_s + self.small_batch_s + self.contention_s
        return compute_s if compute_s > 0 else None

    @model_validator(mode="after")
    def _columns_agree(self) -> Self:
        if self.nodes > self.world_size:
            raise ValueError(f"nodes: at most world_size, {self.world_size} (received {self.nodes})")
        if self.communication_s is not None and self.communication_s >= self.step_time_s:
            raise ValueError(f"communication_s: below step_time_s (received {self.communication_s})")
        low_s, high_s = self.step_time_low_s, self.step_time_high_s
        if low_s is not None and high_s is not None:
            if low_s > self.step_time_s * (1 + 1e-6):
                raise ValueError(f"step_time_low_s: at most step_time_s (received {low_s})")
            if high_s < self.step_time_s * (1 - 1e-6):
                raise ValueError(f"step_time_high_s: at least step_time_s (received {high_s})")
        if self.workers and (
            0 in self.workers or sum(self.workers) != self.world_size or len(self.workers) != self.nodes
        ):
            rule = f"a digit for each of {self.nodes} nodes, {self.world_size} in sum"
            raise ValueError(f"placement: {rule} (received {self.placement})")
        return self


@dataclass(frozen=True)
class MeasuredTable:
    """The rows of a file that are measurements of steps, and what of it is none."""

    rows: tuple[MeasuredRow, ...]
    notes: tuple[str, ...]  # rows and columns that were left out, in words


def read_measured_csv(path: Path, scaling: Scaling | None = None) -> MeasuredTable:
    """The measurements of a file, whose column ``scaling`` must not contradict ``scaling``.

    Raises:
        RequestError: the first fault: the line of the file, the column, the rule and the value received; or
            that it is no such file.
    """
    (header_line, header), *lines = _cells_of(path)
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        told = f"columns missing: {', '.join(missing)} (received {received(', '.join(header))})"
        raise RequestError(f"{path}: line {header_line}: {told}")
    if twice := [name for name, number in Counter(header).items() if number > 1]:
        raise RequestError(f"{path}: line {header_line}: each column once (received {twice[0]} twice)")
    is_summary = all(name in header for name in _SUMMARY)
    rows, skipped = list[MeasuredRow](), Counter[str]()
    for number, cells in lines:
        if len(cells) != len(header):
            told = f"{len(cells)} cells under {len(header)} columns, a torn line or a comma in a number"
            raise RequestError(f"{path}: line {number}: {told} (received {received(','.join(cells))})")
        named = dict(zip(header, cells, strict=True))
        if why := _no_measurement(named) if is_summary else "":
            skipped[why] += 1
            continue
        row = checked(f"{path}: line {number}", MeasuredRow, _values(named, path, is_summary))
        if scaling and row.scaling not in (None, scaling) and not is_summary:
            said = f"{row.scaling}, as the column scaling of {path} says"
            raise RequestError(f"--scaling: {said} (received {scaling})")
        rows.append(row)
    left_out = ", ".join(f"{plural(number, 'row')} {why}" for why, number in skipped.items())
    if not rows:
        raise RequestError(f"{path}: at least one measured step (received none: {left_out or 'no row'})")
    unread = [] if is_summary else [name for name in header if name not in (*_READ, *_KNOBS)]
    notes = [f"left out of {path.name}: {left_out}"] if skipped else []
    notes += [f"columns that were not read: {', '.join(unread)}"] if unread else []
    return MeasuredTable(tuple(rows), tuple(notes))


def _cells_of(path: Path) -> list[tuple[int, list[str]]]:
    """The file's cells with their line's number, the header first, without empty lines."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True, skipinitialspace=True)
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        raise RequestError(f"{path}: line {reader.line_num}: no CSV: {error}") from None
    lines = [(number, cells) for number, cells in rows if any(cells)]
    if not lines:
        raise RequestError(f"{path}: empty: the columns {', '.join(REQUIRED)} are needed")
    return lines


def _no_measurement(named: Mapping[str, str]) -> str:
    """Why a row of a summary.csv is not a step to predict from; empty where it is."""
    if named["state"] != "complete":
        return f"that ended {named['state']}"
    if named["role"] not in COMPARED_ROLES:
        return f"of the role {named['role']}"
    if not named["step_time_s"]:
        return "without a step time"
    return "oversubscribed: more workers than cores" if named.get("oversubscribed") == "true" else ""


def _values(named: Mapping[str, str], path: Path, is_summary: bool) -> dict[str, Any]:
    """The cells that are read, and what is made of them."""
    # of a summary also columns of knobs, which may have the name of what is made of cells here
    known = (set(named) if is_summary else set(_READ)) - set(_MADE)
    read: dict[str, Any] = {
        name: cell or None for name, cell in named.items() if name in known and (cell or name in REQUIRED)
    }
    if is_summary:
        read["nodes"] = named["nodes"] or 1  # empty where nobody told them
    elif (placement := named.get("placement", "")).isascii() and placement.isdecimal():
        # one digit a node, as 44; a word says nothing of them
        read["workers"] = sorted(map(int, placement), reverse=True)
    # what says how a step was run: knobs, and in a summary.csv what varies between its rows
    header, varying = list(named), list[str]()
    if is_summary and {"gradient_compression", "step_time_s"} <= set(header):
        varying = header[header.index("gradient_compression") + 1 : header.index("step_time_s")]
    return {
        "model": path.stem,
        **read,
        "context": [(name, named.get(name, "")) for name in (_CONTEXT if is_summary else _CONTEXT[:1])],
        "setting": [(name, cell) for name, cell in named.items() if name in _KNOBS or name in varying],
    }
