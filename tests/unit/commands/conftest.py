"""Commands here start no exit watcher: a process has one (tests/processes/test_exit_watcher.py)."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from raybench.commands import measuring


@pytest.fixture(autouse=True)
def no_exit_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "exit_watcher", lambda *lines: nullcontext())
