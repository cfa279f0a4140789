"""Two workers that hang or fail."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from raybench.machine import checks


def self_test_that(monkeypatch: pytest.MonkeyPatch, code: str) -> list[subprocess.Popen[str]]:
    """The processes that are started in place of two workers."""
    started, popen = list[Any](), subprocess.Popen

    def instead(command: list[str], **options: Any) -> subprocess.Popen[str]:
        started.append(popen([sys.executable, "-c", code], **options))
        return started[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(subprocess, "Popen", instead)
    return started


def test_workers_that_hang_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started = self_test_that(monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(checks, "ALL_REDUCE_TIMEOUT_S", 0.2)
    (found,) = checks.all_reduce()
    assert found.status == "missing"
    assert [each.poll() for each in started] == [-9]


def test_workers_that_fail_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    self_test_that(monkeypatch, "raise SystemExit('no route to host')")
    (found,) = checks.all_reduce()
    assert found.found == "two workers failed with code 1: no route to host"
