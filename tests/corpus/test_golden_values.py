"""Tables, findings and predictions of stored results directories are what they were, to nine digits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.corpus.golden_values import differences, expected, names, values_of


@pytest.mark.parametrize("name", names())
def test_the_values_are_as_before(name: str, tmp_path: Path) -> None:
    found = json.loads(json.dumps(values_of(name, tmp_path)))
    lines = list(differences(expected(name), found))
    assert not lines, "\n".join(lines[:20])


def test_a_difference_would_be_found() -> None:
    def values(speedup: float, state: str = "complete") -> dict[str, object]:
        return {"summary": [{"speedup": speedup, "state": state}], "best": None}

    assert list(differences(values(1.5), values(1.5 + 1e-12))) == []
    for other in (values(1.5 + 1e-8), values(1.5, "oom"), {"summary": [], "best": None}, {"best": None}):
        assert len(list(differences(values(1.5), other))) == 1
