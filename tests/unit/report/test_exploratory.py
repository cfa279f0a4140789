"""What exploratory means stands once in a document."""

from __future__ import annotations

from raybench.report.pages import EXPLORATORY, EXPLORATORY_AGAIN, exploratory_once


def test_what_exploratory_means_stands_at_its_first_place_alone() -> None:
    text = f"One. {EXPLORATORY} Two. {EXPLORATORY} Three. {EXPLORATORY}"
    assert exploratory_once(text) == f"One. {EXPLORATORY} Two. {EXPLORATORY_AGAIN} Three. {EXPLORATORY_AGAIN}"
    assert exploratory_once("nothing of it") == "nothing of it"
