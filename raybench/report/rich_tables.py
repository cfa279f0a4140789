"""A table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybench.report.tables.base import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

MOST_WIDTH = 100  # columns, however wide the terminal is


def rich_table(table: Table, width: int | None = None, *, tight: bool = False) -> RichTable:
    """``table`` with its title, ``width`` columns wide; ``tight`` leaves less room between columns.

    None: as wide as what is in it.
    """
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        title=Text(table.title) if table.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        width=width,
        pad_edge=False,
        padding=(0, 1, 0, 0) if tight else (0, 1),
    )
    for column in table.columns:
        drawn.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def width_on(console: Console) -> int | None:
    """How wide a table is drawn: over the terminal; piped, no wider than what is in it."""
    return min(console.width, MOST_WIDTH) if console.is_terminal else None
