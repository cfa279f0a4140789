"""What docs/contract.md promises of the program, where no other test shows it."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from raybench import study as command_line
from raybench.analysis.scaling import EXCELLENT, GOOD
from raybench.analysis.summary import Summary
from raybench.errors import StoreError
from raybench.launch.metrics import METRICS
from raybench.machine.environment import capture
from raybench.records import store
from raybench.records.record import SCHEMA_VERSION
from raybench.records.store import ResultsDirectory
from raybench.report.communication import write_sweep_report
from raybench.spec.study import RESERVED_VARIABLES, Study
from raybench.workloads import protocol
from tests.conftest import ROOT
from tests.support.reference import columns
from tests.unit.studies import grid, study
from tests.unit.sweeps import swept

CONTRACT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
NO_UNIT = {  # numbers of summary.csv that have none
    *("bucket_cap_mb", "speedup", "efficiency", "efficiency_low", "efficiency_high"),
    *("efficiency_again_low", "efficiency_again_high"),
    *("communication_fraction", "device_utilization", "accuracy", "mfu"),
    "mfu_datasheet",
}


def block(containing: str) -> str:
    """The page's only block of code with this text."""
    (found,) = (text for text in re.findall(r"```\w*\n(.*?)```", CONTRACT, re.S) if containing in text)
    return str(found)


FILES = [line.split()[0] for line in block("trials.jsonl").splitlines()]


def test_exit_codes_as_they_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ResultsDirectory.create(tmp_path / "empty", study(), capture()):
        pass
    for line, exit_code in (
        (["list"], 0),
        (["report", str(tmp_path / "empty")], 1),
        (["show", "nosuch"], 2),
    ):
        monkeypatch.setattr("sys.argv", ["raybench", *line])
        with pytest.raises(SystemExit) as left:
            command_line.main()
        assert left.value.code == exit_code, capsys.readouterr()


def test_its_study_is_one() -> None:
    assert Study.model_validate(tomllib.loads(block("mlp_study"))).search.method == "optuna"


def test_variables_that_no_study_sets() -> None:
    (sentence,) = re.findall(r"A study cannot set (.*?)\.", CONTRACT, re.S)
    assert set(re.findall(r"`(\w+)`", sentence)) == set(RESERVED_VARIABLES)


# --- workloads


def signatures(kind: type) -> set[str]:
    return {
        f"{name}({', '.join(each for each in inspect.signature(function).parameters if each != 'self')})"
        for name, function in vars(kind).items()
        if inspect.isfunction(function) and not name.startswith("_")
    }


def optional_methods() -> Iterator[str]:
    """What the program looks for in a workload: ``getattr(workload, "name", None)``."""
    package = ROOT / "raybench"
    for path in (*package.glob("workloads/*.py"), *package.glob("worker/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "getattr"
                and ast.unparse(node.args[0]).endswith("workload")
                and isinstance(node.args[1], ast.Constant)
            ):
                yield str(node.args[1].value)


def test_methods_of_a_workload() -> None:
    listed = dict(re.findall(r"^\| `(\w+\([\w, ]*\))` \| (.*?) \|", CONTRACT, re.M))
    required = {*signatures(protocol.Workload), "batch(size, generator)", "dataset(split)"}
    assert {name for name, when in listed.items() if when != "optional"} == required
    optional = {name.partition("(")[0] for name, when in listed.items() if when == "optional"}
    assert optional == set(optional_methods())


# --- results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results directory of a small grid, with its report."""
    path = tmp_path_factory.mktemp("results") / "fake"
    spec = study(knobs={"batch_size": [32, 128]})
    records, samples = grid(spec, (1, 2))
    with ResultsDirectory.create(path, spec, capture()) as directory:
        for record in records:
            directory.append(record, samples.get(record.trial_id, ()))
    done = CliRunner().invoke(command_line.app, ["report", str(path)])
    assert done.exit_code == 0, done.output
    return path


def names_in(folder: Path) -> set[str]:
    return {path.name + "/" * path.is_dir() for path in folder.iterdir() if path.name[0] != "."}


@pytest.mark.promise("report again")
def test_the_report_is_made_of_the_records(results: Path) -> None:
    """What is lost of it comes again, to the letter; what it is made of is not touched."""
    report = results / "report"
    made = {path.name: path.read_bytes() for path in report.iterdir() if path.is_file()}
    records = (results / "trials.jsonl").read_bytes()
    shutil.rmtree(report)
    done = CliRunner().invoke(command_line.app, ["report", str(results), "--quiet"])
    assert done.exit_code == 0, done.output
    assert {"report.html", "summary.csv"} < set(made)
    assert {path.name: path.read_bytes() for path in report.iterdir() if path.is_file()} == made
    assert (results / "trials.jsonl").read_bytes() == records


def test_files_of_a_results_directory(results: Path) -> None:
    assert names_in(results) <= set(FILES)
    assert names_in(results / "report") == {
        name.removeprefix("report/") for name in FILES if name.startswith("report/") and name != "report/"
    }
    assert {path.suffix for path in (results / "report" / "plots").iterdir()} == {".png", ".svg"}
    own = {text for name, text in vars(store).items() if re.fullmatch("[A-Z][A-Z_]+", name) and text}
    own = {text for text in own if isinstance(text, str) and not text.startswith((".", "_"))}
    own -= {SCHEMA_VERSION}
    assert own <= {name.rstrip("/") for name in FILES}


def test_columns_of_the_files(results: Path) -> None:
    written = (results / "report" / "summary.csv").read_text(encoding="utf-8").partition("\n")[0]
    assert written.split(",") == list(columns()["summary.csv"])  # nothing varies that has no column
    for path in (results / "samples").iterdir():
        assert pq.read_schema(path).names == list(columns()["samples/TRIAL_ID.parquet"])


def test_numbers_have_their_unit_in_the_name() -> None:
    numbers = [each.name for each in fields(Summary) if "float" in str(each.type)]
    without = {name for name in numbers if not name.endswith(("_s", "_per_s", "_bytes", "_joules"))}
    assert without == NO_UNIT


def test_files_of_the_report_of_a_sweep(tmp_path: Path) -> None:
    write_sweep_report(tmp_path, swept(world_sizes=(2, 4), message_bytes=(1024, 65536, 1 << 20))[1], {}, "")
    folder = tmp_path / "report"
    assert names_in(folder) == {"report.html", "report.md", "communication.csv", "plots/"}
    written = (folder / "communication.csv").read_text(encoding="utf-8").partition("\n")[0]
    assert written.split(",") == list(columns()["communication.csv"])


@pytest.mark.parametrize("version", ["5", '"1.2"'])
def test_records_of_another_version_are_refused(tmp_path: Path, version: str) -> None:
    assert re.findall(r"schema's\sversion\sis\s([\d.]+\d)", CONTRACT) == [SCHEMA_VERSION]
    spec = study()
    with ResultsDirectory.create(tmp_path / "other", spec, capture()) as directory:
        directory.append(grid(spec, (1,))[0][0])
    path = tmp_path / "other" / store.TRIALS
    line = path.read_text().replace(f'"schema_version":"{SCHEMA_VERSION}"', f'"schema_version":{version}')
    path.write_text(line)
    with pytest.raises(StoreError, match="schema_version"):
        ResultsDirectory.open_readonly(path.parent)


def test_status_begins_at_round_efficiencies() -> None:
    assert (EXCELLENT, GOOD) == (0.9, 0.75)


def test_what_is_watched() -> None:
    assert all(metric.name.startswith("raybench_") for metric in METRICS)
    assert {tag for metric in METRICS for tag in metric.tags} <= {
        *("study", "state", "world_size", "strategy", "setting")
    }
