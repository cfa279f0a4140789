"""A table of strings, and how a terminal shows it; documents render it in ``render``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

MOST_WIDTH = 100  # columns, however wide the terminal is
NAME_WIDTH = 8  # columns at least of a longer name


Row = TypeVar("Row")  # what a row is made from: a record, a point, a group
Value = TypeVar("Value")  # what a cell shows, an estimate most often

NONE = "–"  # what was not, or cannot be, measured


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: its heading, with its unit, the cell of a row that it is made of, and the cells' side."""

    heading: str
    cell: Callable[[Row], str] = str
    right: bool = False
    stays: bool = False  # in its row, where it is the same in all


@dataclass(frozen=True)
class Table:
    """A table of strings with a caption that says what its numbers are."""

    title: str
    caption: str = ""
    columns: tuple[Column[Any], ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()  # none: no report shows it


def make_table(title: str, caption: str, columns: Sequence[Column[Row]], rows: Iterable[Row]) -> Table:
    """The table of ``rows``, a cell of each under every heading."""
    return Table(
        title,
        caption,
        tuple(columns),
        tuple(tuple(column.cell(row) for column in columns) for row in rows),
    )


def without_constant(table: Table) -> Table:
    """The table without columns that say the same in every row: the caption says it once.

    What is empty everywhere goes without a word, of a table with one row too. A column at least stays beside
    that of the names.
    """
    places, columns = range(len(table.columns)), table.columns
    values = [{row[place] for row in table.rows} for place in places]
    filled = [place for place in places if columns[place].stays or not values[place] <= {"", NONE}]
    varying = [place for place in filled if columns[place].stays or len(values[place]) > 1]
    kept = varying if len(table.rows) > 1 and len(varying) > 1 else filled
    if len(kept) in (0, len(columns)):
        return table
    said = [_said(columns[place].heading, *values[place]) for place in filled if place not in kept]
    words = f"In every row: {'; '.join(said)}." if said else ""
    return replace(
        table,
        caption=f"{table.caption} {words}".strip(),
        columns=tuple(columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def _said(heading: str, value: str) -> str:
    """What a column says in every row: devices = 2, peak memory = 123 MiB."""
    name, _, unit = heading.partition(", ")
    is_number = any(each.isdigit() for each in value)  # "refused" has no unit
    return f"{name} = {value} {unit if is_number else ''}".strip()


def known(value: Value | None, words: Callable[[Value], str], otherwise: str = NONE) -> str:
    """The value in ``words``, or what stands in its place where there is none."""
    return otherwise if value is None else words(value)


def numbers(
    heading: str,
    of: Callable[[Row], Value | None],
    words: Callable[[Value], str] = str,
    otherwise: str = NONE,
    *,
    stays: bool = False,
) -> Column[Row]:
    """A column of numbers, to the right: ``of`` a row in ``words``, or what stands where it is not known."""
    return Column(heading, lambda row: known(of(row), words, otherwise), right=True, stays=stays)


def rich_table(table: Table, width: int | None = None) -> RichTable:
    """``table`` with its title, ``width`` columns wide, None: as wide as what is in it.

    Numbers keep their line where names then have room enough.
    """
    drawn = RichTable(
        title=Text(table.title) if table.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        width=width,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    least = [  # columns that each of them takes
        max(map(len, (column.heading, *(row[place] for row in table.rows)))) if column.right else NAME_WIDTH
        for place, column in enumerate(table.columns)
    ]
    has_room = sum(least) + 2 * len(least) < (width or MOST_WIDTH)
    for column in table.columns:
        drawn.add_column(
            column.heading,
            justify="right" if column.right else "left",
            ratio=1 if width and has_room and not column.right else None,
            no_wrap=column.right and has_room,
            overflow="fold",
        )
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def print_table(table: Table, console: Console) -> None:
    """The table and its caption, without what is the same in every row; nothing of a table without rows."""
    if not table.rows:
        return
    shown = without_constant(table)
    console.print(rich_table(shown, width_on(console)))
    if shown.caption:
        console.print(Text(f"{shown.caption}\n"))


def width_on(console: Console) -> int | None:
    """How wide a table is drawn: over the terminal; piped, no wider than what is in it."""
    return min(console.width, MOST_WIDTH) if console.is_terminal else None
