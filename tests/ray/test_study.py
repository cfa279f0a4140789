"""The default study's smoke size, from the shell prompt to the report, and on again."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from raybench.records.store import ResultsDirectory
from tests.support.commands import Command

PARTS = ("ideal_s", "contention_s", "wrapper_s", "skew_s", "exposed_communication_s")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, Path]:
    folder = tmp_path_factory.mktemp("smoke")
    command = Command("scaling", "--smoke", "--output", "out", folder=folder)
    code = command.wait()
    assert code == 0, command.output
    return command, folder / "out"


def rows(directory: Path) -> list[dict[str, str]]:
    with (directory / "report" / "summary.csv").open() as file:
        return list(csv.DictReader(file))


def test_goes_through_every_step_and_ends_with_the_answer(smoke: tuple[Command, Path]) -> None:
    command, directory = smoke
    found = rows(directory)
    assert {row["state"] for row in found} == {"complete"}
    assert {"search", "scaling"} <= {row["role"] for row in found}
    assert {row["world_size"] for row in found if row["role"] == "scaling"} == {"1", "2"}
    searched = [row for row in found if row["role"] == "search"]
    assert len(searched) == 4
    best = max(searched, key=lambda row: float(row["throughput_samples_per_s"]))
    default = (searched[0]["batch_size"], searched[0]["bucket_cap_mb"], searched[0]["precision"])
    if (best["batch_size"], best["bucket_cap_mb"], best["precision"]) != default:
        assert "confirmation" in {row["role"] for row in found}
    assert "2 devices:" in command.output
    assert "Report:  out/report/report.html" in command.output


def test_step_time_is_the_sum_of_its_parts(smoke: tuple[Command, Path]) -> None:
    taken_apart = [row for row in rows(smoke[1]) if row["role"] == "scaling" and row["world_size"] == "2"]
    assert taken_apart
    for row in taken_apart:
        total = sum(float(row[part]) for part in PARTS)
        assert math.isclose(total, float(row["step_time_s"]), rel_tol=1e-6)
        assert float(row["efficiency_low"]) < float(row["efficiency"]) < float(row["efficiency_high"])
        assert float(row["flops_per_s"]) > 0
        assert int(row["gradient_bytes"]) == 4 * (256 * 256 * 2 + 256 * 128 + 256 * 2 + 128)
        phases = sum(
            float(row[f"{name}_s"]) for name in ("data", "forward", "backward", "optimizer", "other")
        )
        # phases are of the step without transfers, in blocks of their own; the rest is waiting for others
        without_transfers_s = sum(float(row[part]) for part in PARTS[:3])
        assert 0.4 < phases / without_transfers_s < 2.0


def test_writes_every_file_of_the_contract(smoke: tuple[Command, Path]) -> None:
    _, directory = smoke
    names = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert {"study.toml", "environment.json", "trials.jsonl", "optuna.log"} <= names
    report = {"report.html", "report.md", "summary.csv", "summary.tex", "diagnosis.md"}
    assert {f"report/{name}" for name in report} <= names
    assert {"report/plots/scaling.png", "report/plots/waterfall.svg"} <= names
    with ResultsDirectory.open_readonly(directory) as store:
        assert {f"samples/{record.trial_id}.parquet" for record in store.records()} <= names
    environment = json.loads((directory / "environment.json").read_text())
    assert environment["packages"]["torch"]


def test_piped_output_is_plain_lines(smoke: tuple[Command, Path]) -> None:
    output = smoke[0].output
    assert "\x1b" not in output
    assert "\r" not in output
    assert "(raylet)" not in output
    assert "Ray dashboard: http" in output


def test_no_process_is_left(smoke: tuple[Command, Path]) -> None:
    assert smoke[0].survivors(10) == []


def test_resume_measures_nothing_twice(smoke: tuple[Command, Path]) -> None:
    command, directory = smoke
    before = (directory / "trials.jsonl").read_text()
    again = Command("scaling", "--resume", "--output", "out", folder=directory.parent, log="again.txt")
    assert again.wait() == 0, again.output
    after = (directory / "trials.jsonl").read_text()
    assert after.startswith(before)
    new = [json.loads(line) for line in after[len(before) :].splitlines()]
    known = {json.loads(line)["trial_id"] for line in before.splitlines()}
    assert not {record["trial_id"] for record in new} & known
    if "not reached" not in command.output:  # a disturbed machine: not enough time, or measurements disagree
        assert all(
            record["request"]["again"] or record["request"]["role"] == "confirmation" for record in new
        )
    assert "2 devices:" in again.output
