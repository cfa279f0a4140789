"""summary.json says what the report says, and its schema describes it."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import jsonschema
from typer.testing import CliRunner

from raybench.analysis.results import StudyResults
from raybench.records.csv_files import rows_csv
from raybench.report.answer import answer
from raybench.report.summary_json import SUMMARY_VERSION, SummaryDocument, benchmark_json, summary_json
from raybench.study import app

ENVIRONMENT = {"hostname": "a", "packages": {"torch": "2.14.1"}, "clock_mhz": 2445.4}


def test_it_holds_the_answer_the_rows_and_the_verdicts(results: StudyResults) -> None:
    document = json.loads(summary_json(results, answer(results), ENVIRONMENT))
    assert document["schema_version"] == SUMMARY_VERSION
    assert [each["words"] for each in document["answer"]] == [each.words for each in answer(results)]
    rows = list(csv.DictReader(io.StringIO(rows_csv(each.row() for each in results.summaries))))
    for point, row in zip(document["points"], rows, strict=True):
        assert point.keys() == row.keys()
        assert (point["step_time_s"] is None) == (row["step_time_s"] == "")
    assert {each["trial_id"] for each in document["verdicts"]} == results.gains.keys()
    first, found = document["findings"][0], results.diagnosis[0]
    assert (first["name"], first["severity"]) == (found.name, found.severity)
    assert document["environment"] == ENVIRONMENT
    assert SummaryDocument.model_validate(document).study == results.study.name


def test_the_schema_that_is_printed_holds_for_it(results: StudyResults, wide: StudyResults) -> None:
    printed = CliRunner().invoke(app, ["show", "--schema"])
    assert printed.exit_code == 0
    schema = json.loads(printed.stdout)
    first = results.diagnosis[0]
    infinite = replace(first, values={**first.values, "relative_difference": math.inf})  # of a loss
    diverged = replace(results, diagnosis=(infinite,))
    for each in (results, wide, diverged):
        jsonschema.validate(json.loads(summary_json(each, answer(each), ENVIRONMENT)), schema)


def test_github_action_benchmark_gets_the_step_time_of_every_point(results: StudyResults) -> None:
    """The keys that its ``customSmallerIsBetter`` reads, and a name that is the same in the next run."""
    entries = json.loads(benchmark_json(results))
    points = [each for each in results.summaries if each.step_time_s is not None]
    assert len({each["name"] for each in entries}) == len(entries) == len(points)
    for entry, point in zip(entries, points, strict=True):
        assert set(entry) == {"name", "unit", "value", "range", "extra"}
        assert (entry["unit"], entry["value"]) == ("ms", point.step_time_s * 1e3)
        low, high = map(float, entry["range"].split(" to "))
        assert low <= entry["value"] <= high
        assert "visit" not in entry["name"]
    assert any("efficiency" in each["extra"] for each in entries)
