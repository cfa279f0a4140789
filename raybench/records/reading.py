"""A results directory as it is read: what was asked, the machine, the records.

study.toml       the resolved study; of a sweep of collectives sweep.toml
environment.json the machine, when the study began
trials.jsonl     the records, one JSON line each
samples/         step times, one parquet file a record
epochs.csv       training trials: one row an epoch and seed, made of the records
checkpoints/     of training trials, one directory a trial
models/          trained models, one directory a trial, where the study keeps them
traces/          of profiled trials: one directory a trial, with files of every rank
.lock, .lock-owner  who is writing here
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from raybench.errors import RequestError, StoreError
from raybench.machine.environment import Environment
from raybench.records.lines import DamagedLineError, first_fault, record_of_line, refuse_other_version
from raybench.records.packed_rounds import Packer
from raybench.records.record import TrialRecord
from raybench.records.whole_files import cannot
from raybench.spec.load import header, load_study, read_toml
from raybench.spec.study import Study
from raybench.spec.sweep import Sweep
from raybench.spec.toml import received
from raybench.spec.typed import real_path

STUDY, SWEEP, ENVIRONMENT, TRIALS, SAMPLES = (
    "study.toml", "sweep.toml", "environment.json", "trials.jsonl", "samples",
)  # fmt: skip
EPOCHS, CHECKPOINTS, MODELS, OPTUNA_JOURNAL = "epochs.csv", "checkpoints", "models", "optuna.log"
TRACES = "traces"
MADE_OF = "made of "  # first words of the header of a study that is kept here
PACKED_FROM_BYTES = 16 * 2**20  # of trials.jsonl: more is kept small in memory

Asked = Study | Sweep  # what a results directory answers


class StoredResults:
    """The results of one study or sweep, as they are on the disk.

    A line that is no record is left out. ``warnings`` has a line for each thing that was survived, such as a
    torn last line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: str | None = None
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
    def is_there(self) -> bool:
        """Whether the records are still where they were written: a directory may be deleted at any time."""
        return (self.path / TRIALS).is_file()

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
        try:
            return Sweep.model_validate(read_toml(path))
        except ValidationError as error:
            raise StoreError(f"{path}: damaged: {first_fault(error)}") from None

    def environment(self) -> Environment:
        """The machine as the study found it; raises ``StoreError`` where the file was damaged."""
        path = self.path / ENVIRONMENT
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise StoreError(f"{path}: not a file")
        try:
            data = json.loads(path.read_bytes())
            refuse_other_version(path, data.pop("schema_version", None))
            return Environment.model_validate(data)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            if isinstance(error, OSError):
                raise StoreError(cannot(path, "be read", error)) from None
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
        path, name = self.path / TRIALS, self._name_asked()
        number = 0
        try:
            with path.open("rb") as file:
                packer = Packer() if path.stat().st_size > PACKED_FROM_BYTES else None
                for number, line in enumerate(file, start=1):
                    if not line.endswith(b"\n"):
                        self._cut_off(number, line)
                        break
                    self._good_end += len(line)
                    try:
                        record = record_of_line(path, number, line[:-1])
                        if record.study != (name or record.study):
                            told = f"study: {name} here (received {received(record.study)})"
                            raise DamagedLineError(f"{path}: line {number} is of another study: {told}")
                    except DamagedLineError as error:
                        if not without_damaged:
                            raise
                        self.warnings.append(f"{error.problems[0]}; it is left out")
                        continue
                    self._records.append(packer.pack(record) if packer else record)
        except OSError as error:
            raise StoreError(cannot(path, "be read", error)) from None
        if self._good_end and not self._records:
            raise StoreError(*self.warnings[:3], f"{path}: no whole record")

    def _name_asked(self) -> str | None:
        """What every record is to have as its study; None where that cannot be read, which ``study`` says."""
        if self.is_sweep:
            return Sweep.name
        try:
            name = read_toml(self.path / STUDY).get("name")
        except RequestError:
            return None
        return name if isinstance(name, str) else None

    def _cut_off(self, number: int, line: bytes) -> None:
        """Leave out what a process that was killed, or is writing, has not ended."""
        self.torn = line.decode(errors="replace")
        self.warnings.append(
            f"{self.path / TRIALS}: line {number} was cut off while it was written and is left out; "
            f"{number - 1} whole records"
        )


def refuse_foreign(path: Path) -> None:
    """Raise ``StoreError`` where there is no results directory of raybench."""
    if not path.exists():
        raise StoreError(f"{path}: no such directory")
    if not path.is_dir():
        raise StoreError(f"{path}: a file, not a results directory")
    if reason := foreign(path):
        raise StoreError(f"{path}: {reason}")


def foreign(path: Path) -> str | None:
    """Why a directory is not one of raybench's, or None."""
    names = (SWEEP if (path / SWEEP).is_file() else STUDY, TRIALS)
    absent = [name for name in names if not (path / name).is_file()]
    return f"not a results directory of raybench, it has no {' and no '.join(absent)}" if absent else None


def kept_header(typed: Path | None) -> str:
    """The head of a study that is kept apart from the file that was ``typed``, for ``made_of``."""
    return f"# {MADE_OF}{typed}\n\n" if typed is not None else ""


def made_of(study_file: Path) -> Path:
    """The file that was typed: of a study that a results directory keeps the one that it was made of."""
    is_kept = study_file.name == STUDY and foreign(study_file.parent) is None
    first = next(iter(header(study_file)), "") if is_kept else ""
    return Path(first.removeprefix(MADE_OF)) if first.startswith(MADE_OF) else real_path(study_file)
