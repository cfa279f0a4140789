"""A line of trials.jsonl that an editor or a disk changed is named with its place, and left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raybench.machine.environment import capture
from raybench.records.store import ResultsDirectory
from tests.support.planted import FakeLearning, FakeRunner
from tests.unit.studies import grid, study, trained_study
from tests.unit.sweeps import KIB, planned, swept


def directory_of(kind: str, path: Path) -> tuple[bytes, ...]:
    """Make a results directory of trials of steps, with trainings, or of a sweep; return its lines."""
    if kind == "steps":
        asked: Any = study(measure={"min_rounds": 3}, scaling={"world_sizes": [1, 2]})
        records: Any = grid(asked, (1, 2), FakeRunner(seed=1))[0]
    elif kind == "trained":
        training = {"epochs": 2, "seeds": 1}
        plan, records = trained_study(FakeLearning(), training=training, measure={"min_rounds": 3})
        asked = plan.study
    else:
        fields: dict[str, Any] = {"world_sizes": (2, 4), "message_bytes": (KIB, 1024 * KIB)}
        asked, records = planned(**fields).sweep, swept(**fields)[0]
    with ResultsDirectory.create(path, asked, capture()) as results:
        for record in (records[0], records[-1]):
            results.append(record)
    return tuple((path / "trials.jsonl").read_bytes().splitlines())


def changed(line: bytes, place: tuple[Any, ...], value: Any) -> bytes:
    data = here = json.loads(line)
    for key in place[:-1]:
        here = here[key]
    assert place[-1] in here or isinstance(here, list)
    here[place[-1]] = value
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("kind", "place", "value", "told"),
    [
        ("steps", ("result", "bucket_bytes"), [0], "result.steps.bucket_bytes.0: "),
        ("steps", ("request", "config", "world_size"), 0, "request.steps.config.world_size: "),
        ("trained", ("result", "epochs", 0, "train_correct"), -1, "result."),
        ("trained", ("result", "epochs", 1, "samples"), [-1], "result."),
        ("swept", ("result", "rounds", 0, "blocks", 0, "time_s", 0), 0.0, "result."),
        ("swept", ("result", "rounds", 0, "at_s"), float("nan"), "result."),
    ],
)
def test_a_value_that_cannot_be_is_named(
    tmp_path: Path, kind: str, place: tuple[Any, ...], value: Any, told: str
) -> None:
    path = tmp_path / kind
    first, last = directory_of(kind, path)
    (path / "trials.jsonl").write_bytes(first + b"\n" + changed(last, place, value) + b"\n")
    with ResultsDirectory.open_readonly(path) as store:
        (warning,) = store.warnings
        assert len(store.records()) == 1
    assert f"line 2 is damaged: {told}" in warning
