"""Commands here have no last words: a process has them (tests/processes/test_last_words.py)."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from raybench.commands import measuring


@pytest.fixture(autouse=True)
def no_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "last_words", lambda *lines: nullcontext())
