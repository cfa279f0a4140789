"""A column is a heading with its cell: none can be left out of one alone."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from rich.console import Console

from raybench.analysis.stats.statistics import Estimate
from raybench.report.format import percent
from raybench.report.table import (
    NONE,
    Column,
    Table,
    known,
    make_table,
    numbers,
    rich_table,
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


def shown(table: Table, width: int | None) -> str:
    """The table as a terminal has it; piped without a ``width``."""
    console = Console(width=width or 100, file=io.StringIO())
    drawn = rich_table(table, width)
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    ruled = next(line for line in text.splitlines() if "─" in line)
    assert len(ruled.rstrip()) <= console.width
    return text


@pytest.mark.parametrize("width", [80, None])
def test_no_cell_is_cut_and_no_name_vanishes(width: int | None) -> None:
    """Not of lists that look like intervals, of long reasons, of more intervals than there is room for."""
    sides = tuple(Column[str](each, stays=True) for each in ("", "one", "two"))
    reason = (
        "3 crashed (RuntimeError: planted), 3 timeout (no end after 120 s), 2 oom [out of memory: 1 of 2]"
    )
    rows = (("knobs.batch_size", "[256, 32]", "[1, 2]"), ("failed", "words " * 7, f"{reason} {reason}"))
    wide = tuple(Column[str](f"samples/s {each}", right=True) for each in range(6))
    intervals = (("a setting", *["44,857 [29,583, 68,016]"] * 6), ("another", *["1.06x [1.02, 1.10]"] * 6))
    for table in (Table("", "", sides, rows), Table("", "", (Column("setting"), *wide), intervals)):
        text = shown(table, width)
        letters = Counter("".join(text.split()))
        expected = Counter("".join("".join(row) for row in table.rows).replace(" ", ""))
        assert not expected - letters


@pytest.mark.parametrize("width", [80, None])
def test_numbers_keep_their_line_where_names_have_room(width: int | None) -> None:
    columns = (Column[str]("setting"), Column[str]("speed-up", right=True), Column[str]("ms", right=True))
    rows = (("batch 256, " * 12, "1.06x [1.02, 1.10]", "12.3 [12.1, 12.6]"),)
    assert "1.06x [1.02, 1.10]  12.3 [12.1, 12.6]" in shown(Table("", "", columns, rows), width)
