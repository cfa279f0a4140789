"""Figures stay what they were: recorded directories, analysed again, against their golden values."""

from __future__ import annotations

import pytest

from tests.corpus.golden.make import differences, names

MOST_SHOWN = 40


@pytest.mark.parametrize("name", names())
def test_the_figures_are_those_of_before(name: str) -> None:
    found = differences(name)
    shown = [*found[:MOST_SHOWN], *([f"... {len(found)} in all"] if len(found) > MOST_SHOWN else [])]
    assert not found, "\n".join(("", *shown))
