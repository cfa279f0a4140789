"""What other programs measured: logs of nccl-tests, and runs of a transformers Trainer and of TraceML.

A log of nccl-tests (its text since 2.0) has the ranks with their hosts, a header that names the columns, and
a row for each message, timed out of place and in place. Several logs may stand in one file, with a launcher's
prefix before each line. What its ``-J FILE.json`` writes is read too. A run's file lacks what a measurement
needs, so the user adds it: ``FILE@DEVICES``, ``FILE@DEVICES/NODES``, ``FILE@DEVICESxBATCH``.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError

from raybench.errors import RequestError
from raybench.records.measured_csv import MeasuredRow, MeasuredTable, read_measured_csv
from raybench.spec.plural import plural
from raybench.spec.sweep import COLLECTIVES, Collective
from raybench.spec.user_input import first_fault

_RANK = re.compile(r"# +Rank +\d+ +(?:Group +(\d+) +)?Pid +\d+ on +(\S+) +device +\d+ +\[\S+\] *(.*)")
_NAME = re.compile(r"\b(\w+?)_perf")
_CONCLUDED = re.compile(r"Collective test concluded: (\w+?)_perf.*")
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
    text, found = _text(path), list[LoggedMessage]()
    first, *tests = re.split(r"(?m)^(?=.*# nThread)", text)
    for before, test in itertools.pairwise([first, *tests]):
        found += _messages(path, _NAME.findall(_CONCLUDED.split(before)[-1]), test)
    if text.startswith("{"):
        found = _json_messages(path, text)
    if not found:
        rule = f"a log of nccl-tests with times of {', '.join(COLLECTIVES)} on several devices"
        raise RequestError(f"{path}: {rule} (received none)")
    return tuple(found)


class _Device(BaseModel):
    group: int = 0
    hostname: str
    device_info: str


class _Devices(BaseModel):
    devices: Annotated[list[_Device], Field(min_length=1)]


class _Timed(BaseModel):
    time: float = 0.0  # us; "nan" and missing where the time of the CPU was asked for


class _JsonRow(BaseModel):
    size: int
    out_of_place: _Timed | None = None
    in_place: _Timed | None = None


class _JsonLog(BaseModel):
    args: list[str]
    config: _Devices
    results: list[_JsonRow]


def _json_messages(path: Path, text: str) -> list[LoggedMessage]:
    try:
        log = _JsonLog.model_validate_json(text)
    except ValidationError as error:
        raise RequestError(f"{path}: {first_fault(error)}") from None
    names = _NAME.findall(" ".join(log.args[:1]))
    devices = [each for each in log.config.devices if each.group == log.config.devices[0].group]
    if not names or names[0] not in COLLECTIVES or len(devices) < 2:
        return []
    nodes = len({each.hostname for each in devices})
    found = list[LoggedMessage]()
    for row in log.results:
        kinds = (row.in_place, row.out_of_place) if names[0] in IN_PLACE else (row.out_of_place, row.in_place)
        times_s = [kind.time / 1e6 for kind in kinds if kind is not None and 0 < kind.time < math.inf]
        if row.size and times_s:
            found.append(
                LoggedMessage(names[0], len(devices), nodes, devices[0].device_info, row.size, times_s[0])
            )
    return found


def _messages(path: Path, announced: Sequence[str], test: str) -> list[LoggedMessage]:
    """One test's rows; ``announced``: the programs that are named between it and the test before."""
    rows, columns = list[tuple[int, list[str]]](), list[str]()
    for line in test.splitlines():
        if " algbw " in line and " time " in line:
            names = line.split()
            columns = [name for name in names[names.index("time") :] if name != "timestamp"]
        elif (row := _ROW.search(line)) and columns:
            values = [each for each in row[2].split() if not _TIMESTAMP.fullmatch(each)]
            rows.append((int(row[1]), values[-len(columns) :]))
    ranks = _RANK.findall(test)
    if rows and not ranks:
        raise RequestError(f'{path}: lines "#  Rank 0 ... on HOST device 0", the devices (received none)')
    group = [rank for rank in ranks if rank[0] == ranks[0][0]]  # with NCCL_TESTS_SPLIT the first of several
    size, hosts = len(group), {host for _, host, _ in group}
    rows = [row for row in rows if row[0] and len(row[1]) == len(columns)]
    if size < 2 or not rows:
        return []
    name = _name_of(path, announced, test, size, rows[-1][1])
    if name not in COLLECTIVES:
        return []
    kinds = [place for place, column in enumerate(columns) if column == "time"]  # in place last
    kinds = kinds[::-1] if name in IN_PLACE else kinds
    times = [(message, [_number(values[place]) for place in kinds]) for message, values in rows]
    return [
        LoggedMessage(name, size, len(hosts), group[0][2], message, next(filter(None, both)) / 1e6)
        for message, both in times
        if any(both)
    ]


def _name_of(path: Path, announced: Sequence[str], test: str, size: int, largest: list[str]) -> Any:
    """The collective, as the log or its name says, else all_reduce by its bus bandwidth."""
    concluded, named = _CONCLUDED.search(test), _NAME.findall(path.name)
    if concluded or announced or named:
        return concluded[1] if concluded else [*named, *announced][-1]
    algorithm, bus = map(_number, largest[1:3])
    reduces = size > 2 or " sum " in test  # between two a broadcast has the same bandwidth
    if reduces and algorithm and abs(bus / algorithm / (2 * (size - 1) / size) - 1) < 0.02:
        return "all_reduce"
    raise RequestError(f"{path}: a file's name that has the test's, as all_gather_perf.log: the log does not")


def _number(text: str) -> float:
    """0 for N/A."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


# --- runs of a Trainer and of TraceML

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(gt=0)]
_TYPED = re.compile(r"(?P<file>.+)@(?P<devices>\d+)(?:/(?P<nodes>\d+))?(?:x(?P<batch>\d+))?")
LEAST_FULL = 0.85  # of the batches of a step: the last one of an epoch may be smaller
TRAINER_NOTE = (
    "Trainer: step times are those of whole runs without evaluation, with start-up and checkpoints; the "
    "files have neither intervals nor communication"
)
TRACEML_NOTE = (
    "TraceML: a step is its wait for input and what was traced, mean over ranks; the files have neither "
    "intervals nor communication"
)
TRACED_NOTE = (
    "TraceML: a step is what was traced, mean over ranks, without the wait for input, which was not "
    "measured; the files have neither intervals nor communication"
)


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


@dataclass(frozen=True)
class _Run:
    """What a run's file and its user say."""

    model: str
    devices: int
    nodes: int
    batch: int
    step_s: float
    passes: int = 1
    notes: tuple[str, ...] = ()

    @property
    def global_batch(self) -> int:
        return self.devices * self.batch * self.passes


def read_measured(files: Sequence[Path], scaling: Literal["weak", "strong"] | None) -> MeasuredTable:
    """The measurements of a CSV file, or of the files of runs.

    Runs of one global batch on several numbers of devices are strong scaling, where ``scaling`` does not say.

    Raises:
        RequestError: a file is neither, or does not say what a measurement needs.
    """
    runs = [RunFile.typed(file) for file in files]
    if missing := [run.path for run in runs if not run.path.exists()]:
        raise RequestError(f"{missing[0]}: no such directory or file")
    if len(runs) == 1 and runs[0].path.suffix != ".json":
        if re.search(r"#.* algbw ", _text(runs[0].path)):
            raise RequestError(f"{files[0]}: a log of nccl-tests is for predict --communication")
        return read_measured_csv(runs[0].path)
    found = [_read_run(run) for run in runs]
    batches, sizes = {each.global_batch for each in found}, {each.devices for each in found}
    mode = scaling or ("strong" if len(batches) == 1 < len(sizes) else "weak")
    rows = [
        _checked(
            run.path,
            MeasuredRow,
            {
                "model": each.model,
                "context": [("device_name", "")],
                "setting": [],
                "nodes": each.nodes,
                "world_size": each.devices,
                "batch_size": each.global_batch if mode == "strong" else each.batch,
                "step_time_s": each.step_s,
                "scaling": mode,
                "gradient_accumulation": each.passes,
            },
        )
        for run, each in zip(runs, found, strict=True)
    ]
    notes = dict.fromkeys(note for each in found for note in each.notes)
    return MeasuredTable(runs[0].path, False, tuple(rows), tuple(notes))


def _read_run(run: RunFile) -> _Run:
    if run.path.is_dir():
        raise RequestError(f"{run.path}: with others a file, as trainer_state.json@8 (received a directory)")
    try:
        content = json.loads(_text(run.path))
    except ValueError:
        content = None
    if isinstance(content, dict) and "log_history" in content:
        return _trainer_run(run, _checked(run.path, _TrainerState, content))
    if isinstance(content, dict) and "step_time" in content:
        return _traceml_run(run, _checked(run.path, _TraceMLSummary, content))
    rule = "a Trainer's trainer_state.json or TraceML's final_summary.json"
    raise RequestError(f"{run.path}: {rule} (received neither)")


def _checked(path: Path, model: type[Any], content: Any) -> Any:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise RequestError(f"{path}: {first_fault(error)}") from None


class _TrainerState(BaseModel):
    global_step: Whole
    train_batch_size: Whole
    log_history: list[dict[str, Any]]


class _TrainerSpeed(BaseModel):
    """What a Trainer logs when it has trained."""

    train_runtime: Positive
    train_samples_per_second: Positive
    train_steps_per_second: Positive


def _trainer_run(run: RunFile, state: _TrainerState) -> _Run:
    ends = [place for place, logged in enumerate(state.log_history) if "train_runtime" in logged]
    if not ends:
        hint = "trainer.save_state() after train() writes it"
        raise RequestError(f"{run.path}: train_runtime in log_history, which a checkpoint's has not: {hint}")
    speed: _TrainerSpeed = _checked(run.path, _TrainerSpeed, state.log_history[ends[-1]])
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
    if run.devices is None and full > 1.02:
        n = round(full)
        raise RequestError(
            f"{run.path}: the number of devices: {run.path}@{n} without accumulation, @1 where one device "
            f"accumulates {n} batches (received a step of {samples:.0f} samples in batches of {batch})"
        )
    devices = run.devices or 1
    passes = max(1, math.ceil(full / devices - 0.02))
    if full / devices / passes < LEAST_FULL:
        raise RequestError(
            f"{run.path}: devices whose batches of {batch} make up the step's {samples:.0f} samples "
            f"(received {devices})"
        )
    return _Run(
        "Trainer",
        devices,
        run.nodes or 1,
        batch,
        (speed.train_runtime - sum(evaluations)) / min(steps, state.global_step),
        passes,
        (TRAINER_NOTE,),
    )


class _TraceMLGlobal(BaseModel):
    average: dict[str, float | None] = {}


class _TraceMLSteps(BaseModel):
    global_: _TraceMLGlobal = Field(alias="global")


class _TraceMLSummary(BaseModel):
    meta: dict[str, Any] = {}
    primary_diagnosis: dict[str, Any] = {}
    step_time: _TraceMLSteps


def _traceml_run(run: RunFile, summary: _TraceMLSummary) -> _Run:
    average = summary.step_time.global_.average
    # before schema 1.7 the first; the last where the wait for input was not traced
    names = ("total_step_ms", "step_time_ms", "traced_step_time_ms")
    name, step_ms = next(((name, average[name]) for name in names if average.get(name)), ("", None))
    if not step_ms:
        raise RequestError(f"{run.path}: step_time.global.average.step_time_ms (received nothing)")
    known = summary.meta.get("world_size")
    devices = run.devices or known
    if known and devices != known:
        raise RequestError(f"{run.path}: its world_size, {known} (received {devices})")
    if run.batch is None or not devices:
        rule = f"the samples of a device, which the file does not have, as {run.path}@{devices or 8}x32"
        raise RequestError(f"{run.path}: {rule} (received none)")
    nodes = run.nodes or summary.meta.get("nodes_observed") or 1
    finding = summary.primary_diagnosis.get("summary")
    notes = (
        TRACEML_NOTE if name != names[-1] else TRACED_NOTE,
        *((f"TraceML on {plural(devices, 'device')}: {finding}",) if finding else ()),
    )
    return _Run("TraceML", devices, nodes, run.batch, step_ms / 1e3, notes=notes)
