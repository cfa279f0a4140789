"""What other programs measured: logs of nccl-tests, and runs of a transformers Trainer and of TraceML.

A log of nccl-tests (its text since 2.0) has the ranks with their hosts, a header that names the columns, and
a row for each message, timed out of place and in place. Several logs may stand in one file, with a launcher's
prefix before each line. A run's file lacks what a measurement needs, so the user adds it: ``FILE@DEVICES``,
``FILE@DEVICES/NODES``, ``FILE@DEVICESxBATCH``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AliasPath, BaseModel, Field

from raybench.errors import RequestError
from raybench.records.base import Amount, Count, checked
from raybench.records.measured_csv import MeasuredRow, MeasuredTable, Scaling, read_measured_csv
from raybench.spec.plural import plural
from raybench.spec.sweep import COLLECTIVES, Collective

_RANK = re.compile(r"# +Rank +\d+ +(?:Group +(\d+) +)?Pid +\d+ on +(\S+) +device +\d+ +\[\S+\] *(.*)")
_NAME = re.compile(r"\b(\w+?)_perf")
_CONCLUDED = re.compile(r"Collective test concluded: (\w+?)_perf")
_ROW = re.compile(r"(?:^|\s)(\d+) +\d+ +(?:u?int\d+|float\w*|half|double|bfloat16|fp8\w*|f8\w*) +(.*)")
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
        elif (row := _ROW.search(line)) and columns:
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
