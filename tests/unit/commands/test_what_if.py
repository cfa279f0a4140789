"""``predict DIR --what-if``, and what a report says of a study's buckets."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raybench import study as command_line
from raybench.analysis.simulate.what_if import Change, study_what_if
from raybench.commands.console import make_console
from raybench.commands.predict import PredictOptions
from raybench.commands.predict_run import parse_changes, run_what_if
from raybench.errors import RequestError
from raybench.machine import environment as environments
from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from raybench.report.sections.settings import buckets_table, buckets_words
from tests.support.analysis import analyse
from tests.support.planted import QUIET, StepCosts
from tests.unit.analysis.simulate.planted import trial
from tests.unit.studies import measured, study

STUDY = study(knobs={"bucket_cap_mb": ["default", 1, 25]}, scaling={"world_sizes": [2]})


def directory(folder: Path, *records: TrialRecord) -> Path:
    with ResultsDirectory.create(folder / "results", STUDY, environments.capture()) as store:
        for record in records:
            store.append(record)
    return folder / "results"


def printed(results: Path, text: str, **options: object) -> str:
    console = make_console(io.StringIO())
    console.width = 200
    asked = PredictOptions([results], what_if=text, **options)  # type: ignore[arg-type]
    assert run_what_if(asked, console) == 0
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_every_combination_of_what_is_typed() -> None:
    assert [each.bucket_cap_mb for each in parse_changes("bucket_cap_mb=1/5/25,.5")] == ["1/5/25", 0.5]
    changes = parse_changes("bucket_cap_mb=1,default link=10Gbit/s,800mbit/s; batch_size=64")
    assert len(changes) == 4
    assert changes[0] == Change(bucket_cap_mb=1.0, link_bits_per_s=1e10, batch_size=64)
    assert changes[3] == Change(bucket_cap_mb="default", link_bits_per_s=8e8, batch_size=64)
    assert parse_changes("gradient_compression=fp16 gradient_accumulation=4") == (
        Change(gradient_compression="fp16", gradient_accumulation=4),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bucket=1",
        "bucket_cap_mb",
        "bucket_cap_mb=",
        "bucket_cap_mb=0",
        "batch_size=1.5",
        "batch_size=0",
        "link=10",
        "link=0Gbit/s",
        "link=10GB/s",
        "gradient_compression=int8",
        "batch_size=8 batch_size=16",
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(RequestError, match=r"--what-if.*received"):
        parse_changes(text)


def test_predicted_steps_stand_beside_measured_ones(tmp_path: Path) -> None:
    results = directory(tmp_path, trial(), trial(1.0))
    text = printed(results, "bucket_cap_mb=1,25")
    (one,) = (line for line in text.splitlines() if line.strip().startswith("1 MiB"))
    assert "%" in one
    (other,) = (line for line in text.splitlines() if line.strip().startswith("25 MiB"))
    assert "–" in other  # not measured
    assert "Intervals hold what was not measured" in text
    quiet = printed(results, "bucket_cap_mb=1", quiet=True)
    assert quiet.startswith("1 MiB buckets: ")
    assert ", measured " in quiet


def test_a_directory_that_cannot_say_is_refused(tmp_path: Path) -> None:
    results = directory(tmp_path, measured(StepCosts(plain_s=0.01), QUIET))
    with pytest.raises(RequestError, match="no complete trial of ddp on several devices with all variants"):
        printed(results, "bucket_cap_mb=1")
    with pytest.raises(RequestError, match="a results directory"):
        printed(tmp_path / "nothing", "bucket_cap_mb=1")
    able = directory(tmp_path / "able", trial())
    with pytest.raises(RequestError, match="a study, not a sweep"):
        printed(able, "bucket_cap_mb=1", communication=able)


def test_options_that_go_elsewhere_are_refused(tmp_path: Path) -> None:
    results = directory(tmp_path, trial())
    arguments = ["predict", str(results), "--what-if", "bucket_cap_mb=1"]
    assert CliRunner().invoke(command_line.app, arguments).exit_code == 0
    refused = CliRunner().invoke(command_line.app, [*arguments, "--world-sizes", "8"])
    assert isinstance(refused.exception, RequestError)


def test_the_report_has_what_was_predicted_before_beside_what_came() -> None:
    results = analyse(STUDY, [trial(), trial(1.0), trial(25.0)])
    chosen = study_what_if(results)
    table = buckets_table(results, chosen)
    assert [row[0] for row in table.rows] == ["as it is (default buckets)", "1 MiB buckets", "25 MiB buckets"]
    assert [row[-1] == "–" for row in table.rows] == [True, False, False]  # what it begins from is not off
    assert "No list of bucket sizes is predicted to be certainly faster" in buckets_words(chosen)
    none = analyse(STUDY, [measured(StepCosts(plain_s=0.01), QUIET)])
    assert not buckets_table(none, study_what_if(none)).rows
