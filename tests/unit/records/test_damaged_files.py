"""Whatever a disk, an editor or another program did to a file of measurements is said in lines."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raybench.analysis import analyse
from raybench.records.measured_csv import read_measured_csv
from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from raybench.report.formats import summary_csv
from tests.support import damage
from tests.support.answers import check_measured, check_records
from tests.support.planted import FakeRunner
from tests.unit.studies import grid, study
from tests.unit.telling import directory_of, short, swept_records, tell, tell_file, trained_records

LIMIT_S = 20.0  # for one input, on a busy machine
STUDY = study(measure={"min_rounds": 3}, scaling={"world_sizes": [1, 2]})
MEASURED = """nodes,world_size,batch_size,step_time_s,model,placement,precision
1,1,32,0.100,a,,fp32
1,2,32,0.110,a,2,fp32
2,4,32,0.125,a,2+2,fp32
2,8,32,0.131,a,4+4,fp32
"""


@cache
def sound_records() -> list[TrialRecord]:
    return [short(record) for record in grid(STUDY, (1, 2), FakeRunner(seed=1))[0]]


@cache
def sound_lines() -> tuple[bytes, ...]:
    return tuple(record.to_line().encode() for record in sound_records())


@cache
def summary() -> str:
    return summary_csv(analyse(STUDY, sound_records()).summaries)


DAMAGED_LINES = st.deferred(lambda: damage.lines(sound_lines()))


def many(number: int) -> settings:
    return settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return directory_of(tmp_path_factory.mktemp("damaged") / "results", STUDY, sound_records())


def test_what_is_sound_is_read(directory: Path) -> None:
    assert check_records(directory, sound_lines(), LIMIT_S, tell)
    for text in (MEASURED, summary()):
        assert check_measured(directory / "measured.csv", text.encode(), LIMIT_S, tell_file)


@many(600)
@given(lines=DAMAGED_LINES)
def test_lines_are_records_or_named(directory: Path, lines: tuple[bytes, ...]) -> None:
    check_records(directory, lines, LIMIT_S)


@many(60)
@given(lines=DAMAGED_LINES)
def test_what_is_read_has_a_report(directory: Path, lines: tuple[bytes, ...]) -> None:
    check_records(directory, lines, LIMIT_S, tell)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, tuple[bytes, ...]]]:
    """Results with trainings, and of a sweep: directory and lines."""
    folder, made = tmp_path_factory.mktemp("damaged"), {}
    for name, (asked, records) in (("trained", trained_records()), ("swept", swept_records())):
        lines = tuple(record.to_line().encode() for record in records)
        made[name] = directory_of(folder / name, asked, records), lines
    return made


@pytest.mark.parametrize("name", ["trained", "swept"])
def test_trainings_and_sweeps_are_read_and_told(
    others: dict[str, tuple[Path, tuple[bytes, ...]]], name: str
) -> None:
    path, lines = others[name]
    assert check_records(path, lines, LIMIT_S, tell)

    @many(300)
    @given(changed=damage.lines(lines))
    def read(changed: tuple[bytes, ...]) -> None:
        check_records(path, changed, LIMIT_S)

    @many(40)
    @given(changed=damage.lines(lines))
    def told(changed: tuple[bytes, ...]) -> None:
        check_records(path, changed, LIMIT_S, tell)

    read()
    told()


@many(1000)
@given(content=damage.csv_files(MEASURED) | st.deferred(lambda: damage.csv_files(summary())))
def test_files_are_tables_or_refused_in_lines(directory: Path, content: bytes) -> None:
    check_measured(directory / "measured.csv", content, LIMIT_S, read_measured_csv)


@many(40)
@given(content=damage.csv_files(MEASURED))
def test_what_is_imported_has_a_report(directory: Path, content: bytes) -> None:
    check_measured(directory / "measured.csv", content, LIMIT_S, tell_file)


# The first were found by changing values of sound lines; each ended the report in a traceback, or in a hang.
FOUND = (
    (("result", "bucket_bytes"), [0], "result.steps.bucket_bytes.0"),
    (("nodes",), 0, "nodes"),
    (("request", "config", "world_size"), 0, "request.steps.config.world_size"),
    (("nodes",), 10**9, "nodes"),
    (("request", "config", "world_size"), 10**9, "request.steps.config.world_size"),
    (("group",), -1, "group"),
)
TOO_MUCH = (
    ("trained", ("result", "epochs", 0, "test_correct"), 10**30),
    ("trained", ("result", "epochs", 0, "train_correct"), 10**9),
    ("trained", ("result", "epochs", 0, "test_samples"), -1),
    ("trained", ("result", "epochs", 0, "skipped_steps"), 10**30),
    ("trained", ("result", "epochs", 0, "noise", 0, "big_batch"), 1),
    ("trained", ("result", "epochs", 0, "noise", 0, "small_square"), -1.0),
    ("trained", ("result", "global_batch_size"), 0),
    ("trained", ("result", "setup_s"), 1e300),
    ("trained", ("result", "device_memory_bytes"), [10**30]),
    ("trained", ("result", "device_memory_bytes"), [2**30]),  # found: the other rank's was looked for
    ("trained", ("result", "device_utilization"), [0.5]),
    ("trained", ("result", "epochs", 1, "samples"), [500]),
    ("swept", ("result", "rounds", 0, "blocks", 0, "message_bytes"), 10**30),
    ("swept", ("result", "rounds", 0, "blocks", 0, "num_operations"), 0),
    ("swept", ("result", "rounds", 0, "blocks", 0, "time_s", 0), 0.0),
    ("swept", ("result", "rounds", 0, "blocks", 0, "time_s"), []),
    ("swept", ("result", "rounds", 0, "blocks"), []),
    ("swept", ("result", "measure_s"), -1.0),
)


def changed(line: bytes, place: tuple[Any, ...], value: Any) -> bytes:
    data = here = json.loads(line)
    for key in place[:-1]:
        here = here[key]
    assert place[-1] in here or isinstance(here, list)
    here[place[-1]] = value
    return json.dumps(data).encode()


@pytest.mark.parametrize(("place", "value", "told"), FOUND, ids=lambda each: str(each))
def test_a_count_that_cannot_be_is_named(
    directory: Path, place: tuple[str, ...], value: Any, told: str
) -> None:
    first, second, *_ = sound_lines()
    (directory / "trials.jsonl").write_bytes(changed(first, place, value) + b"\n" + second + b"\n")
    with ResultsDirectory.open_readonly(directory) as store:
        (warning,) = store.warnings
        assert len(store.records()) == 1
    assert re.search(rf"line 1 is damaged: (Value error, )?{told}: ", warning)


@pytest.mark.parametrize(("name", "place", "value"), TOO_MUCH, ids=lambda each: str(each))
def test_a_training_or_a_sweep_that_cannot_be_is_named(
    others: dict[str, tuple[Path, tuple[bytes, ...]]], name: str, place: tuple[Any, ...], value: Any
) -> None:
    path, lines = others[name]
    (path / "trials.jsonl").write_bytes(lines[0] + b"\n" + changed(lines[-1], place, value) + b"\n")
    with ResultsDirectory.open_readonly(path) as store:
        (warning,) = store.warnings
        assert len(store.records()) == 1
    assert "line 2 is damaged: result." in warning
