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

from raybench.errors import LONGEST_LINE, RequestError
from raybench.machine.environment import capture
from raybench.records.record import TrialRecord
from raybench.records.store import Asked, ResultsDirectory
from tests.support.planted import FakeLearning, FakeRunner
from tests.unit.studies import grid, study, trained_study
from tests.unit.sweeps import KIB, planned, swept

STUDY = study(measure={"min_rounds": 3}, scaling={"world_sizes": [1, 2]})


def directory_of(path: Path, asked: Asked, records: list[TrialRecord]) -> Path:
    """A results directory with these records."""
    with ResultsDirectory.create(path, asked, capture()) as results:
        for record in records:
            results.append(record)
    return path


def trained_records() -> tuple[Asked, list[TrialRecord]]:
    """A study with a training, and a record of each kind that it has."""
    plan, records = trained_study(
        FakeLearning(), training={"epochs": 2, "seeds": 1, "noise_scale": True}, measure={"min_rounds": 3}
    )
    return plan.study, [short(record) for record in records]


def swept_records() -> tuple[Asked, list[TrialRecord]]:
    """A sweep of two messages on two and four devices."""
    fields: dict[str, Any] = {"world_sizes": (2, 4), "message_bytes": (KIB, 1024 * KIB)}
    return planned(**fields).sweep, [short(record) for record in swept(**fields)[0]]


def short(record: TrialRecord) -> TrialRecord:
    """With few rounds: what is damaged is small, and is shown when it is found."""
    rounds = getattr(record.result, "rounds", None)
    if rounds is None or record.result is None:
        return record
    return record.model_copy(update={"result": record.result.model_copy(update={"rounds": rounds[:4]})})


@cache
def sound_records() -> list[TrialRecord]:
    return [short(record) for record in grid(STUDY, (1, 2), FakeRunner(seed=1))[0]]


@cache
def sound_lines() -> tuple[bytes, ...]:
    return tuple(record.to_line().encode() for record in sound_records())


# Each kind of value that stands for a number somewhere, and is none, or none that was measured.
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 3, -0.0, 1e-320, 1e-12, 1e9, 1e300, -1e300, 2**53 + 1, 2**63, 10**30, float("nan"),
    float("inf"), -float("inf"), 0.5, True,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, "", "1", "nan", "=cmd|' /C calc'!A0", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))",
    "$\\frac{$", "\x1b[2J", "a\nb", "\u202e", "../../x", "x" * 3000, [], {}, [1], [[]], {"a": 1},
)  # fmt: skip


@st.composite
def lines(draw: st.DrawFn, sound: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Lines of ``trials.jsonl`` of which some are changed: a value anywhere, a key, bytes."""
    found = list(sound)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(found) - 1))
        if draw(st.integers(0, 4)):
            found[place] = _changed_value(draw, found[place])
        else:
            found[place] = _changed_bytes(draw, found[place]).replace(b"\n", b"")
    if not draw(st.integers(0, 9)):
        found.append(draw(st.sampled_from(found)))
    return tuple(found)


def _changed_value(draw: st.DrawFn, line: bytes) -> bytes:
    try:
        data = json.loads(line)
    except ValueError:
        return line
    here, steps = data, draw(st.integers(1, 8))
    while isinstance(here, dict | list) and here:
        key = draw(st.sampled_from(sorted(here))) if isinstance(here, dict) else _index(draw, here)
        steps -= 1
        if isinstance(here[key], dict | list) and here[key] and steps > 0:
            here = here[key]
            continue
        _change(draw, here, key)
        break
    return json.dumps(data).encode()


def _index(draw: st.DrawFn, values: list[Any]) -> int:
    return draw(st.integers(0, len(values) - 1))


def _change(draw: st.DrawFn, here: Any, key: Any) -> None:
    """One value is another, is gone, is there twice, or is as that of a neighbour."""
    kind = draw(st.sampled_from(("number", "number", "other", "gone", "twice", "scaled")))
    if kind == "number":
        here[key] = draw(st.sampled_from(NUMBERS))
    elif kind == "other":
        here[key] = draw(st.sampled_from(OTHERS))
    elif kind == "gone":
        del here[key]
    elif kind == "scaled" and isinstance(here[key], int | float) and not isinstance(here[key], bool):
        here[key] *= draw(st.sampled_from((-1, 0.1, 3, 1e6, 1e-9)))
    elif isinstance(here, list):
        here.insert(key, here[key])
    else:
        here[f"{key}_"] = here[key]


def _changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(changed) - 1, 0)))
        kind = draw(st.sampled_from(("flip", "cut", "double", "put", "end")))
        if kind == "flip" and changed:
            changed[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del changed[place : place + draw(st.integers(1, 40))]
        elif kind == "double":
            changed[place:place] = changed[place : place + 40]
        elif kind == "end":
            del changed[place:]
        else:
            changed[place:place] = draw(st.binary(max_size=12))
    return bytes(changed)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return directory_of(tmp_path_factory.mktemp("damaged") / "results", STUDY, sound_records())


@given(damaged=st.deferred(lambda: lines(sound_lines())))
@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_lines_are_records_or_named(directory: Path, damaged: tuple[bytes, ...]) -> None:
    (directory / "trials.jsonl").write_bytes(b"".join(line + b"\n" for line in damaged))
    problems: tuple[str, ...] = ()
    try:
        with ResultsDirectory.open_readonly(directory) as store:
            assert len(store.records()) + len(store.warnings) == len(damaged)
    except RequestError as refused:
        problems = refused.problems
    assert all(line.isprintable() and len(line) <= LONGEST_LINE for line in problems)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, tuple[bytes, ...]]]:
    """Results with trainings, and of a sweep: directory and lines."""
    folder, made = tmp_path_factory.mktemp("damaged"), {}
    for name, (asked, records) in (("trained", trained_records()), ("swept", swept_records())):
        lines = tuple(record.to_line().encode() for record in records)
        made[name] = directory_of(folder / name, asked, records), lines
    return made


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
