"""A results directory, read and written: what was asked, the machine, the records.

study.toml       the resolved study; of a sweep of collectives sweep.toml
environment.json the machine, when the study began
trials.jsonl     the records, one JSON line each
samples/         step times, one parquet file a record
epochs.csv       training trials: one row an epoch and seed, made of the records
checkpoints/     of training trials, one directory a trial
models/          trained models, one directory a trial, where the study keeps them
traces/          of profiled trials: one directory a trial, with files of every rank
.lock            held by the process that is writing here
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from filelock import FileLock

from raybench.errors import StoreError
from raybench.machine.environment import Environment, differences, differing
from raybench.records.base import checked
from raybench.records.csv_files import epoch_rows, rows_csv
from raybench.records.record import (
    SCHEMA_VERSION,
    DamagedLineError,
    TrialRecord,
    record_of_line,
    refuse_other_version,
)
from raybench.records.whole_files import LOCK, cannot, lock_directory, replace_whole, write_synced
from raybench.spec.load import load_study, read_toml
from raybench.spec.study import Study
from raybench.spec.sweep import Sweep
from raybench.spec.user_input import flat, received, to_toml

if TYPE_CHECKING:
    # brings numpy, which reading does not need
    from raybench.records.messages import BlockStepTimes, RankFile


STUDY, SWEEP, ENVIRONMENT, TRIALS, SAMPLES = (
    "study.toml", "sweep.toml", "environment.json", "trials.jsonl", "samples",
)  # fmt: skip
EPOCHS, CHECKPOINTS, MODELS, OPTUNA_JOURNAL = "epochs.csv", "checkpoints", "models", "optuna.log"
TRACES = "traces"

Asked = Study | Sweep  # what a results directory answers


@contextmanager
def _named(path: Path, what: str = "be written", but: str = "") -> Iterator[None]:
    """What the system refuses within it becomes a ``StoreError`` that names ``path``."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{cannot(path, what, error)}{but}") from None


class ResultsDirectory(AbstractContextManager["ResultsDirectory"]):
    """The results of one study or sweep, open for writing (``create``, ``resume``) or for reading only.

    A context manager: leaving it releases the lock, which the kernel also does when the process dies.
    ``warnings`` has a line for each thing that was survived, such as a torn last line.
    """

    def __init__(self, path: Path, lock: FileLock | None = None) -> None:
        self.path = path
        self._lock = lock
        self.warnings: list[str] = []
        self._records: list[TrialRecord] = []
        self._good_end = 0  # bytes of trials.jsonl that hold whole records

    @classmethod
    def open_readonly(cls, path: Path) -> Self:
        """A directory to read from, also while a study writes to it.

        Raises:
            StoreError: not raybench's, of a newer schema, or without a whole record.
        """
        path = path.absolute()
        refuse_foreign(path)
        directory = cls(path)
        directory._read()
        return directory

    @property
    def is_sweep(self) -> bool:
        """Whether these are results of a sweep of collectives, and not of a study."""
        return (self.path / SWEEP).is_file()

    @property
    def study_file(self) -> Path:
        """Where the study is written; raises ``StoreError`` where there is none."""
        if self.is_sweep:
            raise StoreError(f"{self.path}: a sweep of collectives (communication), not a study")
        return self.path / STUDY

    def study(self) -> Study:
        """The study as it was resolved; raises ``RequestError`` where there is none, or it was damaged."""
        return load_study(self.study_file)

    def sweep(self) -> Sweep:
        """The sweep as it was resolved; raises ``RequestError`` where there is none, or it was damaged."""
        if not self.is_sweep:
            raise StoreError(f"{self.path}: a study, not a sweep of collectives (communication)")
        path = self.path / SWEEP
        return checked(f"{path}: damaged", Sweep, read_toml(path))

    def environment(self) -> Environment:
        """The machine as the study found it; raises ``StoreError`` where the file was damaged."""
        path = self.path / ENVIRONMENT
        try:
            with _named(path, "be read"):
                data = json.loads(path.read_bytes())
            refuse_other_version(path, data.pop("schema_version", None))
            return Environment.model_validate(data)
        except (ValueError, TypeError, AttributeError):
            raise StoreError(f"{path}: damaged, no description of a machine") from None

    def records(self) -> list[TrialRecord]:
        """Every whole record, oldest first."""
        return list(self._records)

    def latest(self) -> dict[str, TrialRecord]:
        """The record that counts for each trial: of several with one id (a retry), the last."""
        return {record.trial_id: record for record in self._records}

    def samples_path(self, trial_id: str) -> Path:
        """Where the step times of a trial are, if it has any."""
        return self.path / SAMPLES / f"{trial_id}.parquet"

    def _read(self, *, without_damaged: bool = True) -> None:
        """Read the records; a damaged line is left out with a warning, or else refused."""
        path = self.path / TRIALS
        with _named(path, "be read"), path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):  # of a process that was killed, or is writing
                    self.warnings.append(
                        f"{path}: line {number} was cut off while it was written and is left out; "
                        f"{number - 1} whole records"
                    )
                    break
                self._good_end += len(line)
                try:
                    self._records.append(record_of_line(path, number, line[:-1]))
                except DamagedLineError as error:
                    if not without_damaged:
                        raise
                    self.warnings.append(f"{error.problems[0]}; it is left out")
        if self._good_end and not self._records:
            raise StoreError(*self.warnings[:3], f"{path}: no whole record")

    @classmethod
    def create(cls, path: Path, asked: Asked, environment: Environment) -> Self:
        """A new directory for ``asked``.

        Raises:
            StoreError: it exists and is not empty, is no directory, cannot be written or is in use.
        """
        path = path.absolute()
        refuse_occupied(path)
        with _named(path):
            path.mkdir(parents=True, exist_ok=True)
            directory = cls(path, lock_directory(path))
            described = {"schema_version": SCHEMA_VERSION, **environment.model_dump(mode="json")}
            write_synced(path / ENVIRONMENT, json.dumps(described, indent=2) + "\n")
            write_synced(path / _file_of(asked), to_toml(asked))
            write_synced(path / TRIALS, "")  # last: without it nothing goes on here
        return directory

    @classmethod
    def resume(cls, path: Path) -> Self:
        """A directory of an earlier run, to go on in it.

        Raises:
            StoreError: not raybench's, of a newer schema, damaged, not writable or in use.
        """
        path = path.absolute()
        refuse_foreign(path)
        with _named(path):
            directory = cls(path, lock_directory(path))
        try:
            # what is gone would be measured again: that is for the user to decide
            directory._read(without_damaged=False)
            directory._write_epochs()
        except BaseException:
            directory.close()
            raise
        return directory

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock. May be called twice."""
        if self._lock is not None:
            self._lock.release()

    def write_asked(self, asked: Asked) -> None:
        """``asked`` in the place of what is here, for a run that goes on with other time-outs."""
        path = self.path / _file_of(asked)
        with _named(path):
            replace_whole(path, to_toml(asked))

    def append(self, record: TrialRecord, step_times: Sequence[BlockStepTimes] = ()) -> None:
        """Write one record, then its step times; when this returns they are on the disk.

        Raises:
            StoreError: the disk is full or gone. What was there before stays whole.
        """
        if self._lock is None:
            raise StoreError(f"{self.path}: opened for reading only")
        with _named(self.path, but=f": trial {record.trial_id} is lost"):
            self._write_line(record.model_dump_json().encode() + b"\n")
        self._records.append(record)
        if record.request.kind == "training":
            self._write_epochs()
        path = self.samples_path(record.trial_id)
        with _named(path, but=f": the record of trial {record.trial_id} is kept, its step times are not"):
            path.unlink(missing_ok=True)  # of an earlier attempt
            if step_times:
                write_step_times(path, step_times)

    def add_traces(self, trial_id: str, files: Sequence[RankFile]) -> None:
        """Write what the ranks of a trial made for people to open; raises ``StoreError`` as ``append``."""
        folder = self.path / TRACES / trial_id
        with _named(folder, but=f": the record of trial {trial_id} is kept, its traces are not"):
            folder.mkdir(parents=True, exist_ok=True)
            for file in files:
                replace_whole(folder / file.name, file.content)

    def _write_epochs(self) -> None:
        """epochs.csv, made anew of the records that count; whole or as it was."""
        rows = [row for record in self.latest().values() for row in epoch_rows(record)]
        path = self.path / EPOCHS
        with _named(path, but=": the records are kept"):
            if rows:
                replace_whole(path, rows_csv(rows))
            else:
                path.unlink(missing_ok=True)

    def _write_line(self, line: bytes) -> None:
        with (self.path / TRIALS).open("r+b", buffering=0) as file:
            if file.seek(0, os.SEEK_END) < self._good_end:
                raise OSError(errno.EIO, "trials.jsonl was cut by someone else")
            # A torn line of a killed process ends here, as does half a line of a full disk.
            file.truncate(self._good_end)
            file.seek(self._good_end)
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(file.fileno(), rest) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(self._good_end)
                raise
        self._good_end += len(line)

    def check_same(self, asked: Asked, environment: Environment) -> None:
        """Whether ``asked`` on this machine goes on with what is here.

        Raises:
            StoreError: a line for each field of the study or sweep and each part of the machine that differs,
                with both values. What ``MAY_CHANGE_ON_RESUME`` names may differ.
        """
        here = self.sweep() if isinstance(asked, Sweep) else self.study()
        unlike = differing([dict(flat(each.model_dump())) for each in (here, asked)])
        lines = [
            f"{name}: {received(before)} before, {received(now)} now"
            for name, (before, now) in unlike.items()
            if name not in asked.MAY_CHANGE_ON_RESUME
        ]
        lines += differences(self.environment(), environment, may_lack_nodes=True)
        if lines:
            raise StoreError(f"{self.path}: cannot go on, these differ", *lines)


def refuse_foreign(path: Path) -> None:
    """Raise ``StoreError`` where there is no results directory of raybench."""
    if reason := foreign(path):
        raise StoreError(f"{path}: {reason}")


def foreign(path: Path) -> str | None:
    """Why a path is not a results directory of raybench, or None."""
    if not path.is_dir():
        return "a file, not a results directory" if path.exists() else "no such directory"
    names = (SWEEP if (path / SWEEP).is_file() else STUDY, TRIALS)
    absent = [name for name in names if not (path / name).is_file()]
    return f"not a results directory of raybench, it has no {' and no '.join(absent)}" if absent else None


def refuse_occupied(path: Path) -> None:
    """Raise ``StoreError`` where ``path`` is a file, not empty or cannot be read."""
    path = path.absolute()
    with _named(path):
        is_occupied = path.exists() and any(entry.name != LOCK for entry in path.iterdir())
    if is_occupied:
        reason = foreign(path) or "--resume goes on in it"
        raise StoreError(f"{path}: not empty: {reason}; --output takes a new or empty directory")


def _file_of(asked: Asked) -> str:
    return SWEEP if isinstance(asked, Sweep) else STUDY


def write_step_times(path: Path, step_times: Sequence[BlockStepTimes]) -> None:
    """Columns variant, round, rank, step, step_time_s; whole or not at all. Raises ``OSError``."""
    import numpy as np
    import pyarrow as pa  # 0.2 s that commands without samples do not pay
    import pyarrow.parquet as pq

    def columns(block: BlockStepTimes) -> dict[str, Any]:
        ranks, steps = block.step_time_s.shape
        return {
            #: what was run
            "variant": np.full(ranks * steps, block.variant),
            #: number of the round, from 0
            "round": np.full(ranks * steps, block.round, np.int32),
            #: rank in the worker group
            "rank": np.repeat(np.asarray(block.ranks, np.int32), steps),
            #: number of the step in its block, from 0
            "step": np.tile(np.arange(steps, dtype=np.int32), ranks),
            #: from one optimizer step to the next, in s
            "step_time_s": block.step_time_s.ravel(),
        }

    blocks = [columns(block) for block in step_times]
    table = pa.table({name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]})
    path.parent.mkdir(exist_ok=True)
    replace_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))
