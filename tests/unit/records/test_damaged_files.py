"""Whatever a disk, an editor or another program did to a file of measurements is said in lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from rich.console import Console

from raybench.analysis import analyse
from raybench.analysis.results import StudyResults
from raybench.commands.import_report import report_file
from raybench.machine.environment import capture
from raybench.records.measured_csv import read_measured_csv
from raybench.records.store import ResultsDirectory
from raybench.report.answer import answer_of
from raybench.report.contents import make_tables
from raybench.report.formats import summary_csv
from raybench.testing import FakeRunner, damage
from raybench.testing.answers import check_measured, check_records
from tests.unit.studies import grid, study

LIMIT_S = 20.0  # for one input, on a busy machine
STUDY = study(measure={"min_rounds": 3}, scaling={"world_sizes": [1, 2]})
RECORDS = [
    record.model_copy(
        update={"result": record.result.model_copy(update={"rounds": record.result.rounds[:4]})}
    )
    for record in grid(STUDY, (1, 2), FakeRunner(seed=1))[0]
    if record.result is not None
]
LINES = tuple(record.to_line().encode() for record in RECORDS)
MEASURED = """nodes,world_size,batch_size,step_time_s,model,placement,precision
1,1,32,0.100,a,,fp32
1,2,32,0.110,a,2,fp32
2,4,32,0.125,a,2+2,fp32
2,8,32,0.131,a,4+4,fp32
"""
SUMMARY = summary_csv(analyse(STUDY, RECORDS).summaries)


def many(number: int) -> settings:
    return settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def tell(results: StudyResults) -> None:
    """All that a report says of a study in words and tables."""
    assert answer_of(results)
    make_tables(results)
    summary_csv(results.summaries)


def tell_file(file: Path) -> None:
    """The report of a CSV file, on a terminal that nobody sees."""
    report_file(file, None, None, Console(file=io.StringIO()), quiet=False)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "results"
    with ResultsDirectory.create(path, STUDY, capture()) as results:
        for record in RECORDS:
            results.append(record)
    return path


def test_what_is_sound_is_read(directory: Path) -> None:
    assert check_records(directory, LINES, LIMIT_S, tell)
    for text in (MEASURED, SUMMARY):
        assert check_measured(directory / "measured.csv", text.encode(), LIMIT_S, tell_file)


@many(1200)
@given(lines=damage.lines(LINES))
def test_lines_are_records_or_named(directory: Path, lines: tuple[bytes, ...]) -> None:
    check_records(directory, lines, LIMIT_S)


@many(60)
@given(lines=damage.lines(LINES))
def test_what_is_read_has_a_report(directory: Path, lines: tuple[bytes, ...]) -> None:
    check_records(directory, lines, LIMIT_S, tell)


@many(1000)
@given(content=damage.csv_files(MEASURED) | damage.csv_files(SUMMARY))
def test_files_are_tables_or_refused_in_lines(directory: Path, content: bytes) -> None:
    check_measured(directory / "measured.csv", content, LIMIT_S, read_measured_csv)


@many(40)
@given(content=damage.csv_files(MEASURED))
def test_what_is_imported_has_a_report(directory: Path, content: bytes) -> None:
    check_measured(directory / "measured.csv", content, LIMIT_S, tell_file)


# Each was found by changing values of sound lines, and each once ended the report in a traceback.
FOUND = (
    (("result", "bucket_bytes"), [0], "result.steps.bucket_bytes.0"),
    (("nodes",), 0, "nodes"),
    (("request", "config", "world_size"), 0, "request.steps.config.world_size"),
)


@pytest.mark.parametrize(("place", "value", "told"), FOUND, ids=lambda each: str(each))
def test_a_count_that_cannot_be_is_named(
    directory: Path, place: tuple[str, ...], value: Any, told: str
) -> None:
    data = json.loads(LINES[0])
    here = data
    for key in place[:-1]:
        here = here[key]
    here[place[-1]] = value
    (directory / "trials.jsonl").write_bytes(json.dumps(data).encode() + b"\n" + LINES[1] + b"\n")
    with ResultsDirectory.open_readonly(directory) as store:
        (warning,) = store.warnings
        assert len(store.records()) == 1
    assert f"line 1 is damaged: {told}: " in warning
