"""So many of a thing, in words."""

from __future__ import annotations

import pytest

from raybench.spec.plural import plural


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 trials"), (1, "1 trial"), (2, "2 trials"), (1200, "1,200 trials")]
)
def test_one_is_one(number: int, words: str) -> None:
    assert plural(number, "trial") == words


def test_a_plural_of_its_own() -> None:
    assert [plural(number, "match", "matches") for number in (1, 2)] == ["1 match", "2 matches"]
