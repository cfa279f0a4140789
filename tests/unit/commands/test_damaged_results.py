"""Damaged and foreign results: report and compare say in a line what is wrong, or draw what is left."""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raybench import study as study_command
from raybench.commands import report as report_command
from raybench.commands.compare import CompareOptions
from raybench.commands.compare_run import compare_directories
from raybench.commands.console import make_console
from raybench.errors import RequestError
from raybench.machine.environment import capture
from raybench.records.record import SCHEMA_VERSION
from raybench.records.store import ResultsDirectory
from raybench.spec.knobs import Setting
from tests.support.answers import answer_of, at_most
from tests.support.planted import FakeLearning, FakeRunner
from tests.unit.studies import searched, study, trained_study

MUTATIONS = 20
LIMIT_S = 60.0  # for a command, drawing included
SPEC = study(
    knobs={"batch_size": [512, 32, 128], "precision": ["fp32", "bf16"]},
    search={"method": "optuna", "trials": 6},
)
VALUES = (None, 0, -1, -0.5, 1e308, float("nan"), float("inf"), "", "text", [], {}, True, [None], 10**30)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search with its curves and its confirmation, and trainings."""
    path = tmp_path_factory.mktemp("results") / "search"
    records = searched(SPEC, (1, 2), Setting(batch_size=512, precision="bf16"), FakeRunner(seed=2))
    trained = trained_study(FakeLearning())[1]
    with ResultsDirectory.create(path, SPEC, capture()) as store:
        for record in (*records, *trained):
            store.append(record)
    return path


@pytest.fixture
def damaged(results: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(results, tmp_path / "copy"))


def said(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What ``report`` says of it, without drawing plots: they take the time."""
    from raybench.report import document

    monkeypatch.setattr(document, "drawn", lambda *_: ())
    with (path.parent / "said.txt").open("w+") as file:
        with ResultsDirectory.open_readonly(path) as store:
            report_command.write_and_print(store, make_console(file), store.warnings, quiet=True)
        file.seek(0)
        return file.read()


def answered(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What ``report`` says, or why it refuses."""
    try:
        return said(path, monkeypatch)
    except RequestError as error:
        return str(error)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a record, as the keys that lead to it."""
    children = enumerate(value) if isinstance(value, list) else ()
    for key, child in value.items() if isinstance(value, dict) else children:
        yield (*path, key)
        yield from places(child, (*path, key))


def mutated(record: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """One value of it is another, is gone, or stands there twice."""
    changed = copy.deepcopy(record)
    *way, last = draw.choice(list(places(record)))
    parent = changed
    for key in way:
        parent = parent[key]
    how = draw.random()
    if how < 0.15:
        del parent[last]
    elif how < 0.25 and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[last]))
    else:
        parent[last] = copy.deepcopy(draw.choice(VALUES))
    return changed


def test_whatever_one_line_holds_the_rest_is_drawn(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials, draw = damaged / "trials.jsonl", random.Random(4)
    lines = trials.read_text().splitlines()
    left_out = 0
    for _ in range(MUTATIONS):
        place = draw.randrange(len(lines))
        changed = json.dumps(mutated(json.loads(lines[place]), draw))
        content = "\n".join([*lines[:place], changed, *lines[place + 1 :]]) + "\n"
        trials.write_text(content)
        words = answered(damaged, monkeypatch)
        if "this raybench reads" in words:
            continue
        assert re.search(r"\d devices? (?:trains?|are)|best", words), changed
        if "is damaged" in words:
            left_out += 1
            assert f"line {place + 1} is damaged" in words
            assert "it is left out" in words
        assert "nan" not in (damaged / "report/report.md").read_text().replace("finance", ""), changed
        assert trials.read_text() == content  # nothing is written over
    assert left_out > MUTATIONS / 4


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn line": (lambda p: append(p, '{"schema_version": "2.0", "stu'), "was cut off while it was written"),
    "no line is one": (lambda p: (p / "trials.jsonl").write_text("a\nb\n"), "no whole record"),
    "another schema": (
        lambda p: replace(p, f'"schema_version":"{SCHEMA_VERSION}"', '"schema_version":"9.0"'),
        'schema_version "9.0"',
    ),
    "an older schema": (
        lambda p: replace(p, f'"schema_version":"{SCHEMA_VERSION}"', '"schema_version":5'),
        "this raybench reads",
    ),
    "no study": (lambda p: (p / "study.toml").unlink(), "it has no study.toml"),
    "study of another kind": (lambda p: (p / "study.toml").write_text("name = 3"), "name"),
    "no environment": (lambda p: (p / "environment.json").unlink(), "environment.json"),
    "environment is a list": (lambda p: (p / "environment.json").write_text("[]"), "damaged"),
    "report is a file": (lambda p: (p / "report").write_text(""), "report"),
    "binary": (lambda p: (p / "trials.jsonl").write_bytes(os.urandom(4096) + b"\n"), "no whole record"),
}


def append(path: Path, text: str) -> None:
    with (path / "trials.jsonl").open("a") as file:
        file.write(text)


def replace(path: Path, old: str, new: str) -> None:
    (path / "trials.jsonl").write_text((path / "trials.jsonl").read_text().replace(old, new))


@pytest.mark.parametrize("name", HARMS)
def test_a_clear_line(name: str, damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harm, words = HARMS[name]
    harm(damaged)
    before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}
    assert words in answered(damaged, monkeypatch)
    after = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before  # nothing is written over
    other = damaged.parent / "other"
    shutil.copytree(damaged, other)
    told = make_console(io.StringIO())
    with contextlib.suppress(RequestError):  # and nothing else
        compare_directories(CompareOptions([damaged, other]), told)


@pytest.mark.parametrize("name", ["study.toml", "trials.jsonl"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
    name: str, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (damaged / name).unlink()
    os.mkfifo(damaged / name)
    with at_most(LIMIT_S):
        words = answered(damaged, monkeypatch)
    assert name in words
    assert "not a file" in words or "it has no" in words


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "{path}: No space left on device"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/font.ttf"),
            "{path}: /font.ttf: Permission denied",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "{path}: Too many open files"),
    ],
    ids=str,
)
def test_what_fails_beside_the_output_is_said_as_it_is(
    error: OSError, said: str, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr("raybench.report.document.write_report", fails)
    answer = answer_of(study_command.main, ["report", str(damaged), "--quiet"], LIMIT_S)
    told = said.format(path=damaged)
    assert (answer.code, answer.errors) == (2, f"{told}; the records are as they were\n")


@pytest.mark.parametrize("kept", [0, 1])
def test_few_trials_are_said_as_they_are(kept: int, damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (damaged / "trials.jsonl").read_text().splitlines(keepends=True)
    (damaged / "trials.jsonl").write_text("".join(lines[:kept]))
    assert ("Nothing was measured" in said(damaged, monkeypatch)) == (kept == 0)


def test_the_command_ends_with_2_and_no_traceback(damaged: Path) -> None:
    (damaged / "trials.jsonl").write_text("not json\n")
    for arguments in (["report", str(damaged)], ["compare", str(damaged), str(damaged.parent)]):
        answer = answer_of(study_command.main, arguments, LIMIT_S)
        assert answer.code == 2, answer
        assert str(damaged) in answer.errors
