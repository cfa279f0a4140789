"""docs/contract.md is what the program does: its tables are read and compared with the program, both ways."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pyarrow.parquet as pq
import pytest
import typer
from pydantic import BaseModel
from typer.testing import CliRunner

from raybench import study as command_line
from raybench.analysis.findings.finding import FindingName
from raybench.analysis.findings.verifications import Verified
from raybench.analysis.stats import efficiency
from raybench.analysis.summary import VARYING_AFTER, TrialSummary
from raybench.errors import RequestError, StoreError
from raybench.launch.metrics import METRICS
from raybench.machine.environment import capture
from raybench.plan.search import SHOWN
from raybench.records import requests, store
from raybench.records import results as kept
from raybench.records.epochs_csv import COLUMNS
from raybench.records.measured_csv import OPTIONAL, REQUIRED
from raybench.records.record import SCHEMA_VERSION, State, TrialRecord, TrialResult
from raybench.records.store import ResultsDirectory
from raybench.report.communication import write_sweep_report
from raybench.report.prediction import PREDICTION_COLUMNS
from raybench.spec import validation
from raybench.spec.validation import RESERVED_VARIABLES
from raybench.workloads import protocol
from tests.conftest import ROOT
from tests.unit.studies import grid, study
from tests.unit.sweeps import swept

CONTRACT = ROOT / "docs" / "contract.md"
PACKAGE = ROOT / "raybench"
CODE = re.compile(r"`([^`]+)`")
RESULTS = {
    "steps": kept.StepsResult,
    "probe": kept.ProbeResult,
    "training": kept.TrainingResult,
    "collectives": kept.CollectivesResult,
}
COLUMN_OF_A_SWEEP = "column of `communication.csv`"
PARTS: dict[str, type[BaseModel]] = {
    "field of a record": TrialRecord,
    "field of `config`": requests.Configuration,
    "field of a round": kept.Round,
    "field of a block": kept.Block,
    "field of a block of phases": kept.PhaseBlock,
    "field of `gradient_timeline`": kept.GradientTimeline,
    "field of `contention`": kept.Contention,
    "field of a turn of `contention`": kept.ContentionTurn,
    "field of `profile`": kept.TracedRank,
    "field of `parity`": kept.LossParity,
    "field of an epoch": kept.Epoch,
    "field of a round of messages": kept.MessageRound,
    "field of a block of messages": kept.MessageBlock,
    "field of a message not measured": kept.NotMeasured,
} | {f"field of a `{kind}` result": model for kind, model in RESULTS.items()}

Row = dict[str, str]  # a table's cell by the heading of its column


# --- reading the page


@cache
def tables() -> dict[tuple[str, str], list[Row]]:
    """Every table by the heading above it and the heading of its first column."""
    read: dict[tuple[str, str], list[Row]] = {}
    section, headings = "", list[str]()
    for line in CONTRACT.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = line.lstrip("#").strip()
        if not line.startswith("|"):
            headings = []
        elif not headings:
            headings = cells(line)
            assert (section, headings[0]) not in read, f"two tables of {headings[0]} in {section}"
            read[section, headings[0]] = []
        elif not set(line) <= set("|- "):
            row = cells(line)
            assert len(row) == len(headings), f"{len(row)} cells under {len(headings)} headings: {line}"
            read[section, headings[0]].append(dict(zip(headings, row, strict=True)))
    return read


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows(first: str, section: str | None = None) -> list[Row]:
    """The rows of the one table whose first column is headed ``first``."""
    matching = [
        each for (above, head), each in tables().items() if head == first and section in (None, above)
    ]
    assert len(matching) == 1, f"{len(matching)} tables of {first}"
    return matching[0]


def names(first: str, section: str | None = None) -> list[str]:
    """The first column of a table, without the marks of code."""
    return [row[first].strip("`") for row in rows(first, section)]


@cache
def strings() -> frozenset[str]:
    """Every text that stands in the program, docstrings included."""
    found = set()
    for module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return frozenset(found)


def test_every_line_of_a_table_says_something() -> None:
    silent = [row for each in tables().values() for row in each if not list(row.values())[-1]]
    assert not silent


# --- commands


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(command_line.app)
    return dict(group.commands)


def visible() -> dict[str, Any]:
    return {name: command for name, command in commands().items() if not command.hidden}


def choices(command: str, parameter: str) -> list[str]:
    """The words of a closed list that an option takes."""
    registered: list[Any] = command_line.app.registered_commands
    functions = {each.name or each.callback.__name__: each.callback for each in registered}
    annotation = get_type_hints(functions[command])[parameter]
    lists = [each for each in (annotation, *get_args(annotation)) if get_origin(each) is Literal]
    return [word for each in lists for word in get_args(each)]


def test_commands() -> None:
    assert names("command") == list(visible())


@pytest.mark.parametrize("name", visible())
def test_options(name: str) -> None:
    options = [each for each in visible()[name].params if each.param_type_name == "option"]
    if not options:
        assert (name, "option") not in tables()
        return
    by_name = {row["option"].strip("`"): row for row in rows("option", name)}
    assert list(by_name) == [option for each in options for option in each.opts]
    for each in options:
        row = by_name[each.opts[0]]
        assert bool(row["value"]) == (not each.is_flag), f"{each.opts[0]}: a value, or none"
        for choice in choices(name, each.name):
            assert f"`{choice}`" in row["value"], f"{each.opts[0]}: {choice}"


@pytest.mark.parametrize("name", visible())
def test_arguments(name: str) -> None:
    arguments = [each.metavar for each in visible()[name].params if each.param_type_name == "argument"]
    if arguments:
        assert f"`raybench {name} {' '.join(arguments)}`" in CONTRACT.read_text(encoding="utf-8")


def test_columns_of_predict() -> None:
    assert names("column of predict's CSV file") == list(PREDICTION_COLUMNS)


def test_columns_of_measurements() -> None:
    listed = {
        row["column of measurements"].strip("`"): row["needed"] for row in rows("column of measurements")
    }
    assert tuple(name for name, needed in listed.items() if needed == "yes") == REQUIRED
    assert {name for name, needed in listed.items() if needed == "no"} == {*OPTIONAL, "gradient_accumulation"}


@cache
def modules() -> tuple[ast.Module, ...]:
    """All of the program."""
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))


def constants(name: str) -> list[int]:
    """The numbers that a name stands for, at the top of any module; names may be bound side by side."""
    values = []
    for module in modules():
        for node in module.body:
            if isinstance(node, ast.Assign):
                target = node.targets[-1]
                pairs: list[tuple[ast.expr, ast.expr]] = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                values += [
                    value.value
                    for bound, value in pairs
                    if isinstance(bound, ast.Name)
                    and bound.id == name
                    and isinstance(value, ast.Constant)
                    and isinstance(value.value, int)
                ]
    return values


def test_exit_codes() -> None:
    bound = {
        name: constants(name)
        for name in (
            "DONE",
            "NOTHING_COMPLETED",
            "SLOWER",
            "WRONG_REQUEST",
            "CANNOT_WRITE",
            "RAY_DIED",
            "INTERRUPTED",
        )
    }
    assert all(bound.values()), f"not in the program any more: {bound}"
    assert {str(code) for codes in bound.values() for code in codes} == set(names("code"))


def test_exit_codes_as_they_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = study()
    with ResultsDirectory.create(tmp_path / "empty", spec, capture()):
        pass
    for line, code in ((["list"], 0), (["report", str(tmp_path / "empty")], 1), (["show", "nosuch"], 2)):
        monkeypatch.setattr("sys.argv", ["raybench", *line])
        with pytest.raises(SystemExit) as left:
            command_line.main()
        assert left.value.code == code, capsys.readouterr()


def test_variables() -> None:
    listed = names("variable")
    assert all(name in strings() for name in listed)
    read = {each.envvar for command in visible().values() for each in command.params if each.envvar}
    assert read <= set(listed)


# --- studies


def section_of(row: validation.FieldRow) -> str:
    if row.workload is not None:
        return f"[workload]: {row.workload}"
    table = row.name.split(".")[0]
    return f"[{table}]" if "." in row.name or table == "environment" else "A study"


def default_of(row: validation.FieldRow) -> str:
    return "required" if row.required else "unset" if row.default is None else f"`{row.default}`"


def test_study_fields() -> None:
    documented = [
        (section, row["field"], row["default"], row["values"])
        for (section, head), each in tables().items()
        if head == "field"
        for row in each
    ]
    there = [(section_of(row), f"`{row.name}`", default_of(row), row.type) for row in validation.fields()]
    assert sorted(documented) == sorted(there)
    for section in {row[0] for row in there}:  # and in the order of the program
        assert [row for row in documented if row[0] == section] == [row for row in there if row[0] == section]


def test_variables_that_no_study_sets() -> None:
    text = CONTRACT.read_text(encoding="utf-8")
    (paragraph,) = re.findall(r"^Not to be set in a study:.*?\n\n", text, re.M | re.S)
    assert set(CODE.findall(paragraph)) == set(RESERVED_VARIABLES)


# --- workloads


def signatures(kind: type) -> list[str]:
    found = []
    for name, function in vars(kind).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            parameters = [each for each in inspect.signature(function).parameters if each != "self"]
            found.append(f"{name}({', '.join(parameters)})")
    return found


def optional_methods() -> Iterator[str]:
    """What the program looks for in a workload: ``getattr(workload, "name", None)``."""
    for path in (*PACKAGE.glob("workloads/*.py"), *PACKAGE.glob("worker/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "getattr"
                and ast.unparse(node.args[0]).endswith("workload")
                and isinstance(node.args[1], ast.Constant)
            ):
                yield str(node.args[1].value)


def test_methods_of_a_workload() -> None:
    listed = {row["method"].strip("`"): row["when"] for row in rows("method")}
    expected = dict.fromkeys(signatures(protocol.Workload), "required")
    expected |= dict.fromkeys(signatures(protocol.SyntheticWorkload), 'required for `input = "synthetic"`')
    expected |= dict.fromkeys(signatures(protocol.RealWorkload), 'required for `input = "real"`')
    assert {name: when for name, when in listed.items() if when != "optional"} == expected
    optional = [name for name, when in listed.items() if when == "optional"]
    assert {name.partition("(")[0] for name in optional} == set(optional_methods())
    described = inspect.getdoc(protocol.Workload) or ""
    assert all(name in " ".join(described.split()) for name in optional), "the protocol's docstring"


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


def test_files_of_a_report(results: Path) -> None:
    listed = {name.removeprefix("report/") for name in names("path") if name.startswith("report/")} - {""}
    there = {path.name + "/" * path.is_dir() for path in (results / "report").iterdir()}
    assert listed == there


def test_files_of_a_results_directory(results: Path) -> None:
    listed = [name for name in names("path") if not name.startswith("report/")]
    own = {
        text
        for name, text in vars(store).items()
        if name.isupper() and name[0] != "_" and isinstance(text, str)
    }
    own = {text for text in own if not text.startswith(("_", "."))}
    assert own <= {name.rstrip("/") for name in listed}
    others = {name for name in listed if name.rstrip("/") not in own}
    assert others <= strings(), "names that the program does not have"
    for path in PACKAGE.rglob("*.py"):  # files beside the store's own
        written = re.findall(r'\.path / "([\w.]+)"', path.read_text(encoding="utf-8"))
        assert set(written) <= {name.rstrip("/") for name in listed}, path
    for path in results.iterdir():
        assert path.name.startswith(".lock") or path.name + "/" * path.is_dir() in {*listed, "report/"}


def test_plots(results: Path) -> None:
    listed = names("plot")
    drawn = {path.stem for path in (results / "report" / "plots").iterdir()}
    assert {path.suffix for path in (results / "report" / "plots").iterdir()} == {".png", ".svg"}
    assert drawn <= set(listed)
    assert set(listed) <= strings()


def test_columns_of_samples(results: Path) -> None:
    for path in (results / "samples").iterdir():
        assert pq.read_schema(path).names == names("column", "A results directory")


# --- records


@pytest.mark.parametrize("heading", PARTS)
def test_fields_of_a_record(heading: str) -> None:
    assert names(heading) == list(PARTS[heading].model_fields)


def test_fields_of_gradient_norms() -> None:
    (noise,) = (row for row in rows("field of an epoch") if row["field of an epoch"] == "`noise`")
    assert CODE.findall(noise["meaning"]) == list(kept.GradientNorms.model_fields)


def members(union: Any) -> list[type[BaseModel]]:
    """The models of an annotated union."""
    return list(get_args(get_args(union)[0]))


def test_kinds_of_requests_and_results() -> None:
    asked = {model.model_fields["kind"].default: model for model in members(requests.TrialRequest)}
    assert names("kind") == list(asked)
    for row in rows("kind"):
        kind = row["kind"].strip("`")
        assert re.findall(r"`(\w+)`", row["fields"]) == list(asked[kind].model_fields)
    assert {model.model_fields["kind"].default: model for model in members(TrialResult)} == RESULTS


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("state", get_args(State)),
        ("role", get_args(requests.Role)),
        ("variant", get_args(requests.Variant)),
        ("status", tuple(efficiency.Status)),
        ("verdict", tuple(efficiency.Verdict)),
        ("finding", tuple(FindingName)),
        ("verdict of a verification", tuple(Verified)),
    ],
)
def test_closed_lists_of_words(heading: str, words: tuple[str, ...]) -> None:
    assert names(heading) == list(map(str, words))


@pytest.mark.parametrize(
    ("heading", "field", "words"),
    [
        ("field of a `steps` result", "stopped_by", get_args(kept.StopReason)),
        ("field of a block of phases", "seconds", get_args(kept.Phase)),
        (
            "field of a block of phases",
            "variant",
            get_args(kept.PhaseBlock.model_fields["variant"].annotation),
        ),
    ],
)
def test_words_of_a_field(heading: str, field: str, words: tuple[str, ...]) -> None:
    (row,) = (row for row in rows(heading) if row[heading] == f"`{field}`")
    assert tuple(CODE.findall(row["meaning"])) == words


def test_status_begins_where_the_page_says() -> None:
    told = {row["status"].strip("`"): row["efficiency"] for row in rows("status")}
    assert told["excellent"] == f"at least {efficiency.EXCELLENT:g}"
    assert told["good"] == f"at least {efficiency.GOOD:g}"


def test_version_of_the_schema() -> None:
    text = CONTRACT.read_text(encoding="utf-8")
    assert re.findall(r"schema's version is (\d+)", text) == [str(SCHEMA_VERSION)]
    (row,) = (row for row in rows("field of a record") if row["field of a record"] == "`schema_version`")
    assert row["meaning"] == str(SCHEMA_VERSION)


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_records_of_another_version_are_refused(tmp_path: Path, version: int) -> None:
    spec = study()
    with ResultsDirectory.create(tmp_path / "other", spec, capture()) as directory:
        directory.append(grid(spec, (1,))[0][0])
    path = tmp_path / "other" / store.TRIALS
    line = path.read_text().replace(f'"schema_version":{SCHEMA_VERSION}', f'"schema_version":{version}')
    path.write_text(line)
    with pytest.raises(StoreError, match=f"schema_version {version}") as refusal:
        ResultsDirectory.open_readonly(path.parent)
    assert isinstance(refusal.value, RequestError)


# --- tables of numbers


def test_columns_of_epochs_csv() -> None:
    assert names("column", "epochs.csv") == list(COLUMNS)


def test_columns_of_summary_csv(results: Path) -> None:
    listed = names("column", "summary.csv")
    assert listed == [each.name for each in fields(TrialSummary) if each.name != "varying"]
    written = (results / "report" / "summary.csv").read_text(encoding="utf-8").partition("\n")[0]
    assert written.split(",") == listed  # nothing varies but the batch, which has a column
    assert f"After `{VARYING_AFTER}`" in CONTRACT.read_text(encoding="utf-8")


UNITS_BY_ENDING = {"_per_s": "/s", "_bytes": "bytes", "_joules": "J", "_s": "s"}


@pytest.mark.parametrize("heading", ["column", COLUMN_OF_A_SWEEP])
def test_units_are_those_of_the_names(heading: str) -> None:
    for row in rows(heading, "summary.csv" if heading == "column" else None):
        name, unit = row[heading].strip("`"), row["unit"]
        ending = next((end for end in UNITS_BY_ENDING if name.endswith(end)), None)
        if ending == "_per_s":
            assert unit.endswith("/s"), name
        elif ending is not None:
            assert unit == UNITS_BY_ENDING[ending], name
        else:
            assert unit not in ("s", "bytes", "J"), name


# --- what is watched


def test_gauges() -> None:
    listed = {row["gauge"].strip("`"): tuple(CODE.findall(row["labels"])) for row in rows("gauge", "Metrics")}
    assert listed == {metric.name: metric.tags for metric in METRICS}


def test_attributes_of_a_trial_in_the_journal() -> None:
    told = CONTRACT.read_text(encoding="utf-8").rpartition("## optuna.log")[2].rpartition(":\n\n")[2]
    assert tuple(CODE.findall(told)) == SHOWN
    assert set(SHOWN) <= {each.name for each in fields(TrialSummary)}


def test_files_of_the_report_of_a_sweep(tmp_path: Path) -> None:
    _, results = swept(world_sizes=(2, 4), message_bytes=(1024, 65536, 1 << 20))
    write_sweep_report(tmp_path, results, {})
    folder = tmp_path / "report"
    there = {path.name + "/" * path.is_dir() for path in folder.iterdir()}
    assert set(names("file of a sweep's report")) == there
    (plots,) = (
        row for row in rows("file of a sweep's report") if row["file of a sweep's report"] == "`plots/`"
    )
    assert set(CODE.findall(plots["what it is"])) == {path.stem for path in (folder / "plots").iterdir()}
    written = (folder / "communication.csv").read_text(encoding="utf-8").partition("\n")[0]
    assert written.split(",") == names(COLUMN_OF_A_SWEEP)


def test_why_a_message_is_not_measured() -> None:
    heading = "field of a message not measured"
    (row,) = (row for row in rows(heading) if row[heading] == "`why`")
    told = [word for word in CODE.findall(row["meaning"]) if "." not in word]
    assert told == list(get_args(kept.WhyNot))
