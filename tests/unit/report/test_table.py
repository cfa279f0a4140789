"""A column is a heading with its cell: none can be left out of one alone."""

from __future__ import annotations

from raybench.analysis.stats.statistics import Estimate
from raybench.report.format import percent
from raybench.report.table import (
    NONE,
    Column,
    Table,
    empty_table,
    known,
    make_table,
    numbers,
    without_constant,
)


def test_a_column_brings_its_heading_and_its_cells() -> None:
    columns: list[Column[int]] = [
        Column("number", str, right=True),
        Column("twice", lambda number: str(2 * number)),
    ]
    rows = (("1", "2"), ("2", "4"))
    assert make_table("a", "b", columns, [1, 2]) == Table("a", "b", tuple(columns), rows)
    assert make_table("a", "b", columns[1:], [1]) == Table("a", "b", tuple(columns[1:]), (("2",),))
    assert empty_table("a").rows == ()


def test_what_is_not_known_has_no_number() -> None:
    assert known(Estimate(0.5, 0.4, 0.6, 9), percent) == "50% [40, 60]"
    assert known(None, percent) == NONE
    assert known(None, percent, "") == ""
    column: Column[float | None] = numbers("devices", lambda row: row, "{:g}".format)
    assert (column.right, column.cell(2.0), column.cell(None)) == (True, "2", NONE)


def test_columns_that_never_vary_are_said_once() -> None:
    columns = tuple(map(Column, ("devices", "setting", "n", "cost")))
    table = Table("T", "Means.", columns, (("1", "a", "10", "–"), ("2", "a", "10", "–")))
    found = without_constant(table)  # one column alone would be no table
    assert [column.heading for column in found.columns] == ["devices", "setting", "n"]
    assert found.caption == "Means."
    rows = (("1", "a", "10", "–"), ("2", "b", "10", "–"))
    found = without_constant(Table("T", "Means.", columns, rows))
    assert [column.heading for column in found.columns] == ["devices", "setting"]
    assert found.rows == (("1", "a"), ("2", "b"))
    assert found.caption == "Means. In every row: n = 10."


def test_a_table_of_one_row_has_no_empty_columns_and_keeps_the_others() -> None:
    columns = tuple(map(Column, ("devices", "setting", "cost", "why")))
    found = without_constant(Table("T", "Means.", columns, (("2", "a", "–", ""),)))
    assert [column.heading for column in found.columns] == ["devices", "setting"]
    assert found.rows == (("2", "a"),)
    assert found.caption == "Means."
    assert without_constant(found) is found


def test_a_column_that_stays_is_in_its_row_though_it_never_varies() -> None:
    columns: list[Column[int]] = [
        Column("number", str),
        Column("there", lambda _: "4 GPUs", stays=True),
        Column("kind", lambda _: "even"),
    ]
    table = without_constant(make_table("T", "Means.", columns, [2, 4]))
    assert [column.heading for column in table.columns] == ["number", "there"]
    assert table.caption == "Means. In every row: kind = even."


def test_a_column_left_out_is_said_with_its_unit_behind_the_value() -> None:
    headings = tuple(Column(each) for each in ("setting", "sizes, MiB", "ms"))
    table = Table("Buckets", "Sizes.", headings, (("a", "1.41", "2"), ("b", "1.41", "3")))
    assert without_constant(table).caption == "Sizes. In every row: sizes = 1.41 MiB."
