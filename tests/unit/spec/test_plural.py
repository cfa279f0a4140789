"""So many of a thing, or of bytes, in words."""

from __future__ import annotations

import pytest

from raybench.spec.plural import bytes_words, plural


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 trials"), (1, "1 trial"), (2, "2 trials"), (1200, "1,200 trials")]
)
def test_one_is_one(number: int, words: str) -> None:
    assert plural(number, "trial") == words


def test_a_plural_of_its_own() -> None:
    assert [plural(number, "match", "matches") for number in (1, 2)] == ["1 match", "2 matches"]


@pytest.mark.parametrize(
    ("size", "words"),
    [(2**41, "2,048.0 GiB"), (1.5 * 2**30, "1.5 GiB"), (25 * 2**20, "25.0 MiB"), (1536, "1.5 KiB")],
)
def test_bytes_have_the_unit_that_suits_them(size: float, words: str) -> None:
    assert bytes_words(size) == words
