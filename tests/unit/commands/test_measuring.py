"""What a run says when what it writes to goes away."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from raybench.commands import measuring
from raybench.commands.process import CANNOT_WRITE, INTERRUPTED
from raybench.commands.progress import Display
from raybench.errors import Interrupted
from raybench.machine.environment import capture
from raybench.records.store import ResultsDirectory
from raybench.spec.knobs import Setting
from tests.support.planted import StepCosts
from tests.unit.studies import measured, study


def test_a_directory_that_is_deleted_meanwhile_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = StepCosts(0.01)
    records = [measured(costs), measured(costs, setting=Setting(batch_size=64))]
    with ResultsDirectory.create(tmp_path / "results", study(), capture()) as store:
        store.append(records[0])

        def measure(display: Display) -> list[str]:
            shutil.rmtree(store.path)
            store.append(records[1])
            raise AssertionError("written into nothing")

        code, lines = _said(store, measure, monkeypatch)
    assert code == CANNOT_WRITE
    assert f"{tmp_path / 'results'}: cannot be written: No such file or directory" in lines
    assert f"trial {records[1].trial_id} is lost" in lines
    assert "no report: " in lines


def test_an_interrupted_study_says_once_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(display: Display) -> list[str]:
        raise Interrupted("SIGINT")

    with ResultsDirectory.create(
        tmp_path / "results", study(knobs={"batch_size": [32, 64]}), capture()
    ) as store:
        store.append(measured(StepCosts(0.01)))
        code, lines = _said(store, measure, monkeypatch)
    assert code == INTERRUPTED
    assert lines.count("--resume --output") == 1
    assert lines.splitlines()[-1].startswith("To go on: python -m raybench.study scaling --resume")


def test_an_interrupt_while_the_report_is_written_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(store: ResultsDirectory, console: Console, notes: list[str], **told: Any) -> int:
        assert not told["stopped"]
        raise Interrupted("SIGINT")  # as ``interrupt.held`` does, once the report is there

    with ResultsDirectory.create(tmp_path / "results", study(), capture()) as store:
        code, lines = _said(store, lambda display: [], monkeypatch, report)
    assert code == INTERRUPTED
    assert lines.startswith("To go on: python -m raybench.study scaling --resume")


def _said(
    store: ResultsDirectory,
    measure: Callable[[Display], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    report: Callable[..., int] | None = None,
) -> tuple[int, str]:
    """The exit code, and what was printed."""
    said = io.StringIO()
    monkeypatch.setattr(measuring, "own_output", lambda log: _Own(said))
    if report is not None:
        monkeypatch.setattr(measuring, "write_and_print", report)
    ended = measuring.measure_and_report(store, measure, command="scaling", quiet=False)
    return ended.code, said.getvalue()


class _Own:
    """The console of a run, into ``said``."""

    def __init__(self, said: io.StringIO) -> None:
        self._said = said

    def __enter__(self) -> Console:
        return Console(file=self._said, width=400)

    def __exit__(self, *_: object) -> None:
        pass
