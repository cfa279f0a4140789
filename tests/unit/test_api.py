"""raybench from Python: the public surface, what its options become, how it refuses and ends."""

from __future__ import annotations

import csv
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raybench
from raybench import api, study
from raybench.commands import runs, scaling
from raybench.commands.console import make_console
from raybench.commands.measuring import EndedCommand
from raybench.commands.report import write_and_print
from raybench.errors import Interrupted
from raybench.machine.environment import capture
from raybench.records.store import ResultsDirectory
from raybench.report.pages import SCOPE, scoped
from tests.support.answers import answer_of
from tests.unit import studies
from tests.unit.sweeps import planned

MOST_NAMES = 12
TINY = {"name": "tiny", "workload.name": "mlp", "resources.device": "cpu"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("RAYBENCH_DATA", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A study's results directory without its report."""
    spec = studies.study(knobs={"batch_size": [64, 256]})
    records, step_times = studies.grid(spec, (1, 2))
    path = tmp_path / "results"
    with ResultsDirectory.create(path, spec, capture()) as store:
        for record in records:
            store.append(record, step_times[record.trial_id])
    return path


# --- the public surface


def test_the_public_surface_is_small_and_described() -> None:
    assert raybench.__all__ == sorted(raybench.__all__)
    assert len(raybench.__all__) <= MOST_NAMES
    assert dir(raybench) == raybench.__all__
    for name in set(raybench.__all__) - {"__version__"}:
        found = getattr(raybench, name)
        assert inspect.getdoc(found), name
        members = inspect.getmembers(found) if found is raybench.Results else []
        for each, member in members:
            assert each.startswith("_") or inspect.getdoc(member), f"{name}.{each}"
    with pytest.raises(AttributeError, match="scaling"):
        raybench.scaling  # noqa: B018


def test_results_have_what_the_contract_says() -> None:
    public = {name for name in vars(raybench.Results) if not name.startswith("_")}
    assert public == {"answer", "points", "trials", "findings", "directory"}
    assert list(inspect.signature(raybench.open).parameters) == ["directory"]


def test_run_takes_the_options_of_the_command() -> None:
    """And each of them has a line in its docstring."""
    of_run = inspect.signature(raybench.run).parameters
    typed = set(inspect.signature(scaling.scaling).parameters)
    assert set(of_run) - typed == {"factory", "knobs", "set"}
    assert typed - set(of_run) == {"context", "dry_run", "set_"}
    described = re.findall(r"^    (\w+): ", inspect.getdoc(raybench.run) or "", re.M)
    assert [name for name in of_run if name not in described] == []
    with pytest.raises(TypeError, match="'world_size'"):
        raybench.run(world_size=2)


# --- what becomes of the options


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, directory: Path) -> list[scaling.ScalingOptions]:
    """What is to be measured; nothing is."""
    kept = list[scaling.ScalingOptions]()

    def run(options: scaling.ScalingOptions, console: Any) -> EndedCommand:
        kept.append(options)
        return EndedCommand(0, directory)

    monkeypatch.setattr(runs, "run_scaling", run)
    return kept


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        ({}, []),
        ({"world_sizes": [1, 2]}, ["--world-sizes", "1,2"]),
        ({"world_sizes": 2}, ["--world-sizes", "2"]),
        (
            {"world_sizes": "all", "batch_sizes": (64, "max")},
            ["--world-sizes", "all", "--batch-sizes", "64,max"],
        ),
        ({"world_sizes": range(1, 3)}, ["--world-sizes", "1,2"]),
        ({"batch_sizes": np.array([32, 64])}, ["--batch-sizes", "32,64"]),
        ({"trials": np.int64(3), "world_sizes": np.array(2)}, ["--trials", "3", "--world-sizes", "2"]),
        ({"bucket_cap_mb": [1, 2.5, "default"]}, ["--bucket-cap-mb", "1,2.5,default"]),
        ({"time_budget": "10m", "precision": "bf16"}, ["--time-budget", "10m", "--precision", "bf16"]),
        ({"time_budget": 90, "trials": 3}, ["--time-budget", "90", "--trials", "3"]),
        ({"grid": True, "smoke": True, "quiet": True}, ["--grid", "--smoke", "--quiet"]),
        ({"scaling": "strong", "oversubscribe": True}, ["--scaling", "strong", "--oversubscribe"]),
        ({"runner": "tune", "verify": False}, ["--runner", "tune"]),
        (
            {"output": Path("there"), "resume": True, "retry": ["oom"]},
            ["--output", "there", "--resume", "--retry", "oom"],
        ),
        ({"set": {"measure.max_seconds": 5}}, ["--set", "measure.max_seconds=5"]),
        ({"knobs": {"batch_size": [8, 16]}}, ["--set", "knobs.batch_size=[8, 16]"]),
    ],
)
def test_options_are_those_that_are_typed(
    given: dict[str, Any], typed: list[str], asked: list[scaling.ScalingOptions]
) -> None:
    raybench.run("default", **given)
    assert answer_of(study.main, ["scaling", "default", *typed], 30).code == 0
    from_python, from_shell = ({**vars(each)} for each in asked)
    assert from_python.pop("lives_on")
    assert not from_shell.pop("lives_on")
    assert from_python.pop("began") > from_shell.pop("began")  # of the call; of the process
    assert from_python == from_shell


def test_the_directory_of_data_may_be_a_variable(
    asked: list[scaling.ScalingOptions], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAYBENCH_DATA", str(tmp_path))
    raybench.run()
    raybench.run(data=tmp_path / "mine")
    assert [dict(each.overrides)["data"] for each in asked] == [str(tmp_path), str(tmp_path / "mine")]


def test_a_factory_needs_no_study(asked: list[scaling.ScalingOptions]) -> None:
    raybench.run(factory="my.model:build", knobs={"batch_size": 8}, set={"workload.width": 3})
    raybench.run("mine.toml", factory=studies.study)
    alone, with_study = asked
    assert alone.study is None
    assert dict(alone.overrides) == {
        "name": "model",
        "workload.factory": "my.model:build",
        "knobs.batch_size": 8,
        "workload.width": 3,
    }
    assert with_study.study == "mine.toml"
    assert dict(with_study.overrides) == {"workload.factory": "tests.unit.studies:study"}


def test_a_factory_is_planned_without_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to its check, in a process of its own, which no unit test starts."""
    seen = list[Any]()
    monkeypatch.setattr(runs, "check_workload", lambda cluster, plan, needs: seen.append(plan) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        raybench.run(factory="my_model:build", batch_sizes=[8, 16], device="cpu", world_sizes=[1])
    (plan,) = seen
    assert (plan.name, plan.workload.factory, plan.workload.arguments) == ("my_model", "my_model:build", {})
    assert plan.knobs.batch_size == (8, 16)


# --- refusals and ends


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        ({"study": "defualt"}, ["defualt"]),
        ({"world_sizes": [0]}, ["--world-sizes", "0"]),
        ({"precision": ["fp31"]}, ["--precision", "fp31"]),
        ({"grid": True, "trials": 3}, ["--grid", "--trials", "3"]),
        ({"resume": True}, ["--resume"]),
        (
            {"set": {"knobs.batch": 3, "measure.visits": 0}},
            ["--set", "knobs.batch=3", "--set", "measure.visits=0"],
        ),
    ],
)
def test_a_wrong_request_raises_what_the_command_says(given: dict[str, Any], typed: list[str]) -> None:
    with pytest.raises(raybench.RequestError) as error:
        raybench.run(**given)
    answer = answer_of(study.main, ["scaling", *typed], 30)
    assert answer.code == 2
    assert list(error.value.problems) == answer.errors.splitlines()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"smoke": 1}, "--smoke: True or False (received 1)"),
        ({"runner": "slurm"}, '--runner: group, tune (received "slurm")'),
        ({"scaling": "both"}, 'scaling.mode: "weak" or "strong" (received "both")'),
        ({"factory": lambda: None}, "factory: a function of a module that workers can import"),
        ({"factory": "my_model"}, 'workload.factory: text such as "package.module:function"'),
    ],
)
def test_what_only_python_can_get_wrong(given: dict[str, Any], words: str) -> None:
    with pytest.raises(raybench.RequestError) as error:
        raybench.run(**given)
    assert words in str(error.value)


def test_a_function_of_a_notebook_is_refused() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def build(): pass", names)
    with pytest.raises(raybench.RequestError, match="%%writefile"):
        raybench.run(factory=names["build"])


@pytest.mark.parametrize(
    ("code", "error"),
    [(130, KeyboardInterrupt), (3, raybench.RayDiedError), (2, raybench.StoreError)],
)
def test_what_ends_a_run_is_raised(
    code: int, error: type[BaseException], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "run_scaling", lambda *_: EndedCommand(code, directory))
    with pytest.raises(error, match=str(directory)):
        raybench.run()


def test_an_interrupt_and_a_full_disk_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(error: BaseException) -> Any:
        def run(*_: Any) -> None:
            raise error

        return run

    monkeypatch.setattr(runs, "run_scaling", raising(Interrupted("SIGINT")))
    with pytest.raises(KeyboardInterrupt, match="SIGINT"):
        raybench.run()
    monkeypatch.setattr(runs, "run_scaling", raising(OSError(28, "No space left on device", "x")))
    with pytest.raises(raybench.StoreError, match="x: No space left on device"):
        raybench.run()


# --- results


def test_points_and_trials_are_the_files(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = raybench.open(directory)
    assert capfd.readouterr() == ("", "")
    assert not (directory / "report").exists()
    with ResultsDirectory.open_readonly(directory) as store:
        write_and_print(store, make_console())
    for name, frame in (("summary", results.points), ("trials", results.trials)):
        with (directory / "report" / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert list(frame) == list(rows[0])
        assert len(frame) == len(rows)
        for column in ("step_time_s", "efficiency", "world_size", "accuracy"):
            there = [float(row[column]) if row[column] else None for row in rows]
            assert [None if pd.isna(value) else pytest.approx(value) for value in frame[column]] == there
        assert frame["efficiency"].dtype == frame["accuracy"].dtype == "float64"
        assert frame["world_size"].dtype == frame["visits"].dtype == "Int64"
        assert frame["oversubscribed"].dtype == "boolean"
        assert pd.api.types.is_string_dtype(frame["status"])


def test_what_results_say(directory: Path) -> None:
    results = raybench.open(str(directory))
    assert results.directory == directory
    assert results.answer.startswith("2 devices ")
    assert results.answer.count("\n") >= 2
    assert repr(results) == f"<raybench.Results of results>\n{results.answer}"
    for finding in results.findings:
        assert isinstance(finding, raybench.FoundCause)
        assert finding.name
        assert finding.next_step
    assert any(isinstance(each.explains_s, raybench.Interval) for each in results.findings)


def test_in_a_notebook_they_are_the_first_screen(directory: Path) -> None:
    page = raybench.open(directory)._repr_html_()
    assert page.startswith(f'<div id="{SCOPE}">')
    assert page.count("<div") == page.count("</div>")
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "2 devices " in page
    assert "batch 256" in page
    for absent in ("<html", "<body", "<script", "<nav", 'src="http', "@import", "url("):
        assert absent not in page
    (style,) = re.findall("<style>(.*?)</style>", page, re.S)
    first, rules = style.split("\n", 1)
    assert first == f"#{SCOPE}, #{SCOPE} * {{ all: revert; }}"
    assert rules.startswith(f"#{SCOPE} {{\n& {{ color-scheme")
    assert rules.endswith("\n}")
    assert ":root" not in rules


def test_scoped_rules_are_nested_in_the_scope() -> None:
    css = (
        ":root { --a: 1; }\nbody { margin: 0; }\ntbody { color: red; }\n@media print {\n  * { margin: 0 }\n}"
    )
    assert scoped(css, "#here") == (
        "#here {\n& { --a: 1; }\n& { margin: 0; }\ntbody { color: red; }\n"
        "@media print {\n  * { margin: 0 }\n}\n}"
    )


def test_open_refuses_what_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(raybench.StoreError, match="nowhere"):
        raybench.open(tmp_path / "nowhere")
    ResultsDirectory.create(tmp_path / "sweep", planned().sweep, capture()).close()
    with pytest.raises(raybench.StoreError, match="a sweep of collectives"):
        raybench.open(tmp_path / "sweep")


def test_a_damaged_line_is_a_warning(directory: Path) -> None:
    trials = directory / "trials.jsonl"
    trials.write_text(trials.read_text() + '{"half')
    with pytest.warns(UserWarning, match="trials.jsonl"):
        raybench.open(directory)


def test_the_home_of_the_names() -> None:
    assert raybench.run is api.run
    assert raybench.open is api.open
