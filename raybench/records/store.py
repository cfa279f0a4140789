"""A results directory that is written: a line a record, on disk once it is known; one process at a time.

What is in it: ``records.reading``.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from filelock import FileLock

from raybench.errors import StoreError
from raybench.machine.environment import Environment, differences_on_resume, unlike_before
from raybench.records.epochs_csv import epochs_csv
from raybench.records.packed_rounds import Packer
from raybench.records.reading import (
    CHECKPOINTS,
    ENVIRONMENT,
    EPOCHS,
    MODELS,
    OPTUNA_JOURNAL,
    SAMPLES,
    STUDY,
    SWEEP,
    TRACES,
    TRIALS,
    Asked,
    StoredResults,
    foreign,
    kept_header,
    refuse_foreign,
)
from raybench.records.record import SCHEMA_VERSION, TrialRecord
from raybench.records.step_times import write_step_times
from raybench.records.whole_files import (
    LOCK,
    OWNER,
    cannot,
    lock_directory,
    replace_whole,
    unlock_directory,
    write_synced,
)
from raybench.spec.counted import counted
from raybench.spec.sweep import Sweep
from raybench.spec.toml import flat, received, to_toml

if TYPE_CHECKING:
    from raybench.records.messages import (
        BlockStepTimes,
        RankFile,
    )  # brings numpy, which reading does not need

__all__ = ["CHECKPOINTS", "MODELS", "OPTUNA_JOURNAL", "TRACES", "Asked", "ResultsDirectory", "cannot"]


def refuse_occupied(path: Path) -> None:
    """Raise ``StoreError`` where ``path`` is a file, not empty or cannot be read."""
    path = path.absolute()
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path}: a file, not a directory")
    try:
        is_occupied = path.is_dir() and any(entry.name not in (LOCK, OWNER) for entry in path.iterdir())
    except OSError as error:
        raise StoreError(cannot(path, "be written", error)) from None
    if is_occupied:
        ours = "--resume goes on in it, or name another --output"
        raise StoreError(f"{path}: not empty: {foreign(path) or ours}")


class ResultsDirectory(StoredResults):
    """The results of one study or sweep, open for writing (``create``, ``resume``) or for reading only.

    A context manager: leaving it releases the lock, which the kernel also does when the process dies.
    """

    def __init__(self, path: Path, lock: FileLock | None = None) -> None:
        super().__init__(path)
        self._lock = lock
        self._packer = Packer()

    @classmethod
    def create(cls, path: Path, asked: Asked, environment: Environment, made_of: Path | None = None) -> Self:
        """A new directory for ``asked``; ``made_of``: the file that was typed, which its copy here names.

        Raises:
            StoreError: it exists and is not empty, is no directory, cannot be written or is in use.
        """
        path = path.absolute()
        try:
            refuse_occupied(path)
            path.mkdir(parents=True, exist_ok=True)
            directory = cls(path, lock_directory(path))
        except OSError as error:
            raise StoreError(cannot(path, "be written", error)) from None
        try:
            if not isinstance(asked, Sweep):  # which has no steps
                (path / SAMPLES).mkdir(exist_ok=True)
            described = {"schema_version": SCHEMA_VERSION, **environment.model_dump(mode="json")}
            write_synced(path / ENVIRONMENT, json.dumps(described, indent=2) + "\n")
            write_synced(path / _file_of(asked), _text(asked, made_of))
            write_synced(path / TRIALS, "")
        except BaseException as error:
            for name in (TRIALS, _file_of(asked), ENVIRONMENT):  # so that the next attempt finds it empty
                (path / name).unlink(missing_ok=True)
            if (path / SAMPLES).is_dir():
                (path / SAMPLES).rmdir()
            directory.close()
            if not isinstance(error, OSError):
                raise
            raise StoreError(cannot(path, "be written", error)) from None
        return directory

    @classmethod
    def resume(cls, path: Path) -> Self:
        """A directory of an earlier run, to go on in it.

        Raises:
            StoreError: not raybench's, of a newer schema, damaged, not writable or in use.
        """
        path = path.absolute()
        refuse_foreign(path)
        try:
            directory = cls(path, lock_directory(path))
        except OSError as error:
            raise StoreError(cannot(path, "be written", error)) from None
        try:
            # what is gone would be measured again: that is for the user to decide
            directory._read(without_damaged=False)
            directory._write_epochs()
        except BaseException:
            directory.close()
            raise
        return directory

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock. May be called twice."""
        if self._lock is not None:
            unlock_directory(self.path, self._lock)

    def write_asked(self, asked: Asked, made_of: Path | None = None) -> None:
        """``asked`` in the place of what is here, for a run that goes on with other time-outs."""
        path = self.path / _file_of(asked)
        try:
            replace_whole(path, _text(asked, made_of))
        except OSError as error:
            raise StoreError(cannot(path, "be written", error)) from None

    def append(self, record: TrialRecord, step_times: Sequence[BlockStepTimes] = ()) -> None:
        """Write one record, then its step times; when this returns they are on the disk.

        Raises:
            StoreError: the disk is full or gone. What was there before stays whole.
        """
        if self._lock is None:
            raise StoreError(f"{self.path}: opened for reading only")
        line = record.to_line().encode() + b"\n"
        try:
            self._write_line(line)
        except OSError as error:
            whether = "kept" if self.is_there else "gone with it"
            kept = f"{counted(len(self._records), 'record')} before it {whether}"
            raise StoreError(
                f"{cannot(self.path, 'be written', error)}: trial {record.trial_id} is lost, {kept}"
            ) from None
        own = record.model_copy(update={"result": record.result and record.result.model_copy()})
        self._records.append(self._packer.pack(own))  # small: a study may go on for days
        if record.request.kind == "training":
            self._write_epochs()
        path = self.samples_path(record.trial_id)
        try:
            path.unlink(missing_ok=True)  # of an earlier attempt
            if step_times:
                write_step_times(path, step_times)
        except OSError as error:
            raise StoreError(
                f"{cannot(path, 'be written', error)}: "
                f"the record of trial {record.trial_id} is kept, its step times are not"
            ) from None

    def add_traces(self, trial_id: str, files: Sequence[RankFile]) -> None:
        """Write what the ranks of a trial made for people to open; raises ``StoreError`` as ``append``."""
        folder = self.path / TRACES / trial_id
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for file in files:
                replace_whole(folder / file.name, file.content)
        except OSError as error:
            raise StoreError(
                f"{cannot(folder, 'be written', error)}: "
                f"the record of trial {trial_id} is kept, its traces are not"
            ) from None

    def _write_epochs(self) -> None:
        """epochs.csv, made anew of the records that count; whole or as it was."""
        path, text = self.path / EPOCHS, epochs_csv(self.latest().values())
        try:
            if not text:
                path.unlink(missing_ok=True)
                return
            replace_whole(path, text)
        except OSError as error:
            raise StoreError(f"{cannot(path, 'be written', error)}: the records are kept") from None

    def _write_line(self, line: bytes) -> None:
        descriptor = os.open(self.path / TRIALS, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size < self._good_end:
                raise OSError(errno.EIO, "trials.jsonl was cut by someone else")
            # A torn line of a killed process ends here, as does half a line of a full disk.
            os.ftruncate(descriptor, self._good_end)
            os.lseek(descriptor, self._good_end, os.SEEK_SET)
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, self._good_end)
                raise
        finally:
            os.close(descriptor)
        self._good_end += len(line)

    def check_same(self, asked: Asked, environment: Environment) -> None:
        """Whether ``asked`` on this machine goes on with what is here.

        What may differ without making measurements incomparable (commit, kernel) becomes a warning.

        Raises:
            StoreError: a line for each field of the study or sweep and each part of the machine that differs,
                with both values. What ``MAY_CHANGE_ON_RESUME`` names may differ.
        """
        here = self.sweep() if isinstance(asked, Sweep) else self.study()
        before, now = dict(flat(here.model_dump())), dict(flat(asked.model_dump()))
        lines = [
            f"{name}: {received(before.get(name))} before, {received(now.get(name))} now"
            for name in [*before, *(name for name in now if name not in before)]
            if before.get(name) != now.get(name) and name not in asked.MAY_CHANGE_ON_RESUME
        ]
        machine_before = self.environment()
        lines += differences_on_resume(machine_before, environment)
        if lines:
            raise StoreError(f"{self.path}: cannot go on, these differ", *lines)
        for line in unlike_before(machine_before, environment):
            self.warnings.append(f"{self.path}: goes on, though not as it began: {line}")


def _file_of(asked: Asked) -> str:
    return SWEEP if isinstance(asked, Sweep) else STUDY


def _text(asked: Asked, made_of: Path | None) -> str:
    return kept_header(made_of) + to_toml(asked)
