"""What ``predict`` prints: the tables of each model, then what they mean in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raybench.analysis.simulate.outlook import Outlook
from raybench.report.outlook_words import outlook_sentences
from raybench.report.rich_tables import MOST_WIDTH, rich_table
from raybench.report.tables.base import Table
from raybench.report.tables.prediction import prediction_table, tradeoff_table

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 16  # of the table of costs


def print_outlooks(
    outlooks: Sequence[Outlook], console: Console, *, costs: bool, quiet: bool = False
) -> None:
    """Each model's tables and sentences.

    ``costs`` adds what epochs and runs take, ``quiet`` leaves the tables out.
    """
    from rich.text import Text

    for outlook in outlooks:
        if not quiet:
            print_table(prediction_table(outlook, _title(outlook)), console)
            table = tradeoff_table(outlook, most_rows=MOST_ROWS)
            if costs and table.rows:
                print_table(table, console)
                console.print(Text(f"{table.caption}\n"))
        for line in outlook_sentences(outlook, costs=costs):
            console.print(Text(line))
        console.print()


def print_table(table: Table, console: Console) -> None:
    """No wider than it has to be."""
    drawn = rich_table(table, tight=True)
    for column, cells in zip(drawn.columns, zip(*table.rows, strict=True), strict=True):
        column.no_wrap = any("[" in cell for cell in cells)  # the last to be folded is an interval
    console.print(drawn, width=min(console.width, MOST_WIDTH))


def _title(outlook: Outlook) -> str:
    forecast = outlook.forecast
    setting = f", {forecast.group.setting}" if forecast.group.setting else ""
    return f"{forecast.group.model}{setting}: {forecast.scaling} scaling"
