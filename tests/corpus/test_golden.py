"""Figures stay what they were: recorded directories, analysed again, against their golden values."""

from __future__ import annotations

import pytest

from tests.corpus.golden.make import compared, differences, names

MOST_SHOWN = 40


@pytest.mark.parametrize("name", names())
def test_the_figures_are_those_of_before(name: str) -> None:
    found = differences(name)
    shown = [*found[:MOST_SHOWN], *([f"... {len(found)} in all"] if len(found) > MOST_SHOWN else [])]
    assert not found, "\n".join(("", *shown))


def test_a_difference_is_named_and_rounding_is_none() -> None:
    was = {"summary.csv": {"a1": {"n": 2, "step_s": 0.25, "gain": [0.1, 0.0, 0.2]}, "b2": {"state": "oom"}}}
    now = {"summary.csv": {"a1": {"n": 2, "step_s": 0.25 + 1e-11, "gain": [0.1, 0.0, 0.21]}, "c3": {}}}
    assert list(compared("grid", was, was)) == []
    assert list(compared("grid", was, now)) == [
        "grid / summary.csv / a1 / gain: expected [0.1, 0.0, 0.2], got [0.1, 0.0, 0.21]",
        'grid / summary.csv / b2: missing, expected {"state": "oom"}',
        "grid / summary.csv / c3: new: {}",
    ]
