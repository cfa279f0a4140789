"""A column is a heading with its cell: none can be left out of one alone."""

from __future__ import annotations

from raybench.analysis.estimates.statistics import Estimate
from raybench.report.tables.base import NONE, Column, Heading, Table, empty_table, known, make_table
from raybench.report.wording import percent


def test_a_column_brings_its_heading_and_its_cells() -> None:
    columns: list[Column[int]] = [
        Column("number", str, right=True),
        Column("twice", lambda number: str(2 * number)),
    ]
    headings = (Heading("number", right=True), Heading("twice"))
    assert make_table("a", "b", columns, [1, 2]) == Table("a", "b", headings, (("1", "2"), ("2", "4")))
    assert make_table("a", "b", columns[1:], [1]) == Table("a", "b", headings[1:], (("2",),))
    assert empty_table("a").rows == ()


def test_what_is_not_known_has_no_number() -> None:
    assert known(Estimate(0.5, 0.4, 0.6, 9), percent) == "50% [40, 60]"
    assert known(None, percent) == NONE
    assert known(None, percent, "") == ""
