"""What was measured elsewhere: CSV files of step times, nccl-tests' logs, runs of a Trainer and of TraceML.

A CSV file has one row a measurement, checked cell by cell. It is a ``summary.csv``, or has the columns
``nodes, world_size, batch_size, step_time_s`` and optionally those of ``OPTIONAL`` and any knob, as
docs/reference.md names it.

A log of nccl-tests (its text since 2.0) has the ranks with their hosts, a header that names the columns, and
a row for each message, timed out of place and in place. Several logs may stand in one file, with a launcher's
prefix before each line. A run's file lacks what a measurement needs, so the user adds it: ``FILE@DEVICES``,
``FILE@DEVICES/NODES``, ``FILE@DEVICESxBATCH``.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AliasPath, BaseModel, Field, model_validator

from raybench.errors import RequestError
from raybench.records.base import Amount, Count, Difference, Duration, Frozen, Workers, checked
from raybench.records.requests import COMPARED_ROLES
from raybench.spec.knobs import Setting
from raybench.spec.plural import plural
from raybench.spec.sweep import COLLECTIVES, Collective
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
_READ_COLUMNS = (*REQUIRED, *OPTIONAL, "gradient_accumulation")
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
    unread = [] if is_summary else [name for name in header if name not in (*_READ_COLUMNS, *_KNOBS)]
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
    known = (set(named) if is_summary else set(_READ_COLUMNS)) - set(_MADE)
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


# --- logs of nccl-tests

_RANK = re.compile(r"# +Rank +\d+ +(?:Group +(\d+) +)?Pid +\d+ on +(\S+) +device +\d+ +\[\S+\] *(.*)")
_NAME = re.compile(r"\b(\w+?)_perf")
_CONCLUDED = re.compile(r"Collective test concluded: (\w+?)_perf")
_LOGGED_ROW = re.compile(r"(?:^|\s)(\d+) +\d+ +(?:u?int\d+|float\w*|half|double|bfloat16|fp8\w*|f8\w*) +(.*)")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d")
IN_PLACE = ("all_reduce", "broadcast")  # as DDP has them; FSDP gathers and scatters out of place


@dataclass(frozen=True)
class LoggedMessage:
    """A row of a log of nccl-tests."""

    collective: Collective
    world_size: int
    nodes: int
    device_name: str
    message_bytes: int  # the larger of what goes in and what comes out
    time_s: float


def read_nccl_tests(path: Path) -> tuple[LoggedMessage, ...]:
    """The messages of a log on several devices; of collectives that raybench does not know there are none.

    Raises:
        RequestError: it is no log of nccl-tests, or does not say of what or on which devices.
    """
    tests = re.split(r"(?m)^(?=.*# nThread)", _text(path))[1:]
    names = _NAME.findall(path.name) if len(tests) == 1 else []
    found = [message for test in tests for message in _messages(path, test, names)]
    if not found:
        rule = f"a log of nccl-tests with times of {', '.join(COLLECTIVES)} on several devices"
        raise RequestError(f"{path}: {rule} (received none)")
    return tuple(found)


def _messages(path: Path, test: str, names: Sequence[str]) -> list[LoggedMessage]:
    """One test's rows; ``names``: of the file, where it has no other test."""
    rows, columns = list[tuple[int, list[float]]](), list[str]()
    for line in test.splitlines():
        if " algbw " in line and " time " in line:
            words = line.split()
            columns = [word for word in words[words.index("time") :] if word != "timestamp"]
        elif (row := _LOGGED_ROW.search(line)) and columns:
            values = [each for each in row[2].split() if not _TIMESTAMP.fullmatch(each)][-len(columns) :]
            pairs = zip(columns, values, strict=False)
            times_us = [_number(value) for column, value in pairs if column == "time"]  # in place last
            timed_us = [each for each in times_us if 0 < each < math.inf]
            if len(values) == len(columns) and timed_us:
                rows.append((int(row[1]), timed_us))
    ranks = _RANK.findall(test)
    if rows and not ranks:
        raise RequestError(f'{path}: lines "#  Rank 0 ... on HOST device 0", the devices (received none)')
    hosts = [host for group, host, _ in ranks if group == ranks[0][0]]  # with NCCL_TESTS_SPLIT of several
    concluded = _CONCLUDED.search(test)
    names = [concluded[1]] if concluded else names
    if rows and not names:
        raise RequestError(
            f"{path}: a log of one test with its name, as all_gather_perf.log: this one does not say which"
        )
    if not rows or names[-1] not in COLLECTIVES or len(hosts) < 2:
        return []
    place = -1 if names[-1] in IN_PLACE else 0
    return [
        LoggedMessage(names[-1], len(hosts), len(set(hosts)), ranks[0][2], message, times_us[place] / 1e6)
        for message, times_us in rows
        if message
    ]


def _number(text: str) -> float:
    """0 for N/A."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


# --- runs of a Trainer and of TraceML

_TYPED = re.compile(r"(?P<file>.+)@(?P<devices>\d+)(?:/(?P<nodes>\d+))?(?:x(?P<batch>\d+))?")
LEAST_FULL = 0.85  # of the batches of a step: the last one of an epoch may be smaller
TRAINER_NOTE = (
    "Trainer: step times are those of whole runs without evaluation, with start-up and checkpoints; the "
    "files have neither intervals nor communication"
)
TRACEML_NOTE = "TraceML: a step is {what}; the files have neither intervals nor communication"
TRACED = "its wait for input and what was traced, mean over ranks"
WITHOUT_WAIT = "what was traced, mean over ranks, without the wait for input, which was not measured"


@dataclass(frozen=True)
class RunFile:
    """A run's file, and what the user says of it."""

    path: Path
    devices: int | None = None
    nodes: int | None = None
    batch: int | None = None  # samples of a device in one pass

    @classmethod
    def typed(cls, text: Path) -> Self:
        """``FILE@DEVICES/NODESxBATCH`` or a part of it."""
        match = None if text.exists() else _TYPED.fullmatch(str(text))
        if match is None:
            return cls(text)
        numbers = (int(each) if each else None for each in match.group("devices", "nodes", "batch"))
        return cls(Path(match["file"]), *numbers)


_Read = tuple[MeasuredRow, tuple[str, ...]]  # and notes


def read_measured(files: Sequence[Path], scaling: Scaling | None) -> MeasuredTable:
    """The measurements of a CSV file, or of the files of runs.

    Runs of one global batch on several numbers of devices are strong scaling, where ``scaling`` does not say.

    Raises:
        RequestError: a file is neither, or does not say what a measurement needs.
    """
    runs = [RunFile.typed(file) for file in files]
    if missing := [run.path for run in runs if not run.path.exists()]:
        raise RequestError(f"{missing[0]}: no such directory or file")
    if len(runs) == 1 and runs[0].path.suffix != ".json":
        return read_measured_csv(runs[0].path, scaling)
    found = [_read_run(run) for run in runs]
    batches = [row.batch_size * row.world_size * row.gradient_accumulation for row, _ in found]  # of a step
    several = len({row.world_size for row, _ in found}) > 1
    mode = scaling or ("strong" if several and len(set(batches)) == 1 else "weak")
    rows = tuple(
        row.model_copy(update={"scaling": mode} | ({"batch_size": batch} if mode == "strong" else {}))
        for (row, _), batch in zip(found, batches, strict=True)
    )
    notes = dict.fromkeys(note for _, notes in found for note in notes)
    return MeasuredTable(rows, tuple(notes))


def _read_run(run: RunFile) -> _Read:
    try:
        content = json.loads(_text(run.path))
    except ValueError:
        content = None
    if isinstance(content, dict) and "log_history" in content:
        return _trainer_run(run, checked(str(run.path), _TrainerState, content))
    if isinstance(content, dict) and "step_time" in content:
        return _traceml_run(run, checked(str(run.path), _TraceMLSummary, content))
    rule = "a Trainer's trainer_state.json or TraceML's final_summary.json"
    raise RequestError(f"{run.path}: {rule} (received neither)")


class _TrainerState(BaseModel):
    global_step: Count
    train_batch_size: Count
    log_history: list[dict[str, Any]]


class _TrainerSpeed(BaseModel):
    """What a Trainer logs when it has trained."""

    train_runtime: Amount
    train_samples_per_second: Amount
    train_steps_per_second: Amount


def _row(run: RunFile, model: str, devices: int, batch: int, step_s: float, passes: int = 1) -> MeasuredRow:
    values = {"nodes": run.nodes or 1, "world_size": devices, "batch_size": batch, "step_time_s": step_s}
    more = {"context": [("device_name", "")], "setting": [], "gradient_accumulation": passes}
    return checked(str(run.path), MeasuredRow, {"model": model, **values, **more})


def _trainer_run(run: RunFile, state: _TrainerState) -> _Read:
    ends = [place for place, logged in enumerate(state.log_history) if "train_runtime" in logged]
    if not ends:
        hint = "trainer.save_state() after train() writes it"
        raise RequestError(f"{run.path}: train_runtime in log_history, which a checkpoint's has not: {hint}")
    speed = checked(str(run.path), _TrainerSpeed, state.log_history[ends[-1]])
    # three decimals: of fewer steps after a resume, and of more where an older Trainer stopped early
    steps = speed.train_steps_per_second * speed.train_runtime
    if abs(steps - state.global_step) <= 0.0005 * speed.train_runtime + 1:
        steps = state.global_step
    evaluations = [
        each["eval_runtime"]
        for each in state.log_history[: ends[-1]]
        if "eval_runtime" in each and each.get("step", 0) > state.global_step - steps
    ]
    samples = speed.train_samples_per_second * speed.train_runtime / steps
    batch = run.batch or state.train_batch_size
    full = samples / batch  # batches of all devices and passes
    devices = run.devices or 1
    passes = max(1, math.ceil(full / devices - 0.02))
    if full / devices / passes < LEAST_FULL or (run.devices is None and passes > 1):
        raise RequestError(
            f"{run.path}: the devices that make a step of {samples:.0f} samples in batches of {batch}, as "
            f"{run.path}@{round(full)}, or @1 where one accumulates them (received {run.devices or 'none'})"
        )
    step_s = (speed.train_runtime - sum(evaluations)) / min(steps, state.global_step)
    return _row(run, "Trainer", devices, batch, step_s, passes), (TRAINER_NOTE,)


class _TraceMLSummary(BaseModel):
    meta: dict[str, Any] = {}
    primary_diagnosis: dict[str, Any] = {}
    averages: Annotated[
        dict[str, float | None], Field(validation_alias=AliasPath("step_time", "global", "average"))
    ]


def _traceml_run(run: RunFile, summary: _TraceMLSummary) -> _Read:
    average = summary.averages
    # before schema 1.7 the first; the last where the wait for input was not traced
    names = ("total_step_ms", "step_time_ms", "traced_step_time_ms")
    name, step_ms = next(((name, average[name]) for name in names if average.get(name)), ("", None))
    if not step_ms:
        raise RequestError(f"{run.path}: step_time.global.average.step_time_ms (received nothing)")
    known: int | None = summary.meta.get("world_size")
    devices = run.devices or known
    if known and devices != known:
        raise RequestError(f"{run.path}: its world_size, {known} (received {devices})")
    if run.batch is None or devices is None:
        rule = f"the samples of a device, which the file does not have, as {run.path}@{devices or 8}x32"
        raise RequestError(f"{run.path}: {rule} (received none)")
    known_run = replace(run, nodes=run.nodes or summary.meta.get("nodes_observed"))
    note = TRACEML_NOTE.format(what=WITHOUT_WAIT if name == names[-1] else TRACED)
    finding = summary.primary_diagnosis.get("summary")
    notes = (note, *((f"TraceML on {plural(devices, 'device')}: {finding}",) if finding else ()))
    return _row(known_run, "TraceML", devices, run.batch, step_ms / 1e3), notes
