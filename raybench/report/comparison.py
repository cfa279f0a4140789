"""What ``compare`` prints: the tables of several studies side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybench.analysis.comparison import SideBySide
from raybench.report.rich_tables import rich_table
from raybench.report.tables.comparison import comparison_tables
from raybench.report.terminal import MOST_WIDTH

if TYPE_CHECKING:
    from rich.console import Console


def print_comparison(studies: SideBySide, console: Console) -> None:
    """All tables that have something to say, then who has nothing in common with the first."""
    from rich.text import Text

    for table in comparison_tables(studies):
        console.print(rich_table(table, min(console.width, MOST_WIDTH)))
        if table.caption:
            console.print(Text(table.caption + "\n"))
    alone = [other.name for other in studies.others if not other.same_trials]
    if alone:
        console.print(Text(f"no trial in common with {studies.first.name}: {', '.join(alone)}"))
