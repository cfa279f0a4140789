"""What ``compare`` prints: the tables of several studies side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybench.analysis.comparison import SideBySide
from raybench.report.tables.base import Table
from raybench.report.tables.comparison import comparison_tables
from raybench.report.terminal import MOST_WIDTH

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


def print_comparison(studies: SideBySide, console: Console) -> None:
    """All tables that have something to say, then who has nothing in common with the first."""
    from rich.text import Text

    for table in comparison_tables(studies):
        console.print(_drawn(table, min(console.width, MOST_WIDTH)))
        if table.caption:
            console.print(Text(table.caption + "\n"))
    alone = [other.name for other in studies.others if not other.same_trials]
    if alone:
        console.print(Text(f"no trial in common with {studies.first.name}: {', '.join(alone)}"))


def _drawn(table: Table, width: int) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD, width=width, pad_edge=False
    )
    for column in table.columns:
        drawn.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn
