"""Counts what is started here, by a test or by raybench, and keeps what programs are forked from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.starting import Ready
from tests.support import budget


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Every start counts; what a process forks that stands ready is none of this one's."""
    if Path(__file__).parent not in item.path.parents:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((subprocess.Popen, "__init__"), (os, "fork")):
            patch.setattr(owner, name, _counted(getattr(owner, name)))
        return (yield)


def _counted(start: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any, **options: Any) -> Any:
        budget.took(budget.PROCESSES)
        return start(*arguments, **options)

    return counted


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a program writes lands in the checkout."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def ready() -> Iterator[Ready]:
    """Programs are forked from a process that has the command line imported."""
    yield from _ready("import raybench.study, raybench.commands.console, raybench.commands.progress")


@pytest.fixture(scope="session")
def bare() -> Iterator[Ready]:
    """Programs are forked from a Python that has nothing imported."""
    yield from _ready("")


def _ready(imports: str) -> Iterator[Ready]:
    process = Ready(imports)
    try:
        yield process
    finally:
        process.end()
