"""Texts on disk, and a cache of their own."""

import pytest

from raybench.workloads import hub, tokenizers
from tests.unit.workloads.small_texts import WORDS


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    """The folder of what is tokenised; the hub cannot be reached."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "reachable", lambda: False)
    tokenizers.named.cache_clear()
    return tmp_path / "cache" / "raybench"


@pytest.fixture
def data(tmp_path):
    """A small AG News: 12 training texts and 4 test texts."""
    for split, times in (("train", 3), ("test", 1)):
        rows = [f'"{text} {number}",{label}\n' for number in range(times) for label, text in enumerate(WORDS)]
        (tmp_path / f"{split}_some.csv").write_text("".join(rows))
    return tmp_path
