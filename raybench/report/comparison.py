"""What ``compare`` prints and writes: the tables of several studies side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from raybench.analysis.comparison import Side, SideBySide
from raybench.report import formats
from raybench.report.answer import Clause, answer_of
from raybench.report.method import method_words
from raybench.report.pages import make_pages, write_files
from raybench.report.plots.batches import draw_batches
from raybench.report.plots.comparison import batches_plot, defaults_plot
from raybench.report.plots.drawn import DrawnPlot, drawn
from raybench.report.plots.scaling import draw_scaling
from raybench.report.plots.waterfall import draw_waterfall, waterfall_plot
from raybench.report.rich_tables import rich_table, width_on
from raybench.report.sections import Place, make_sections
from raybench.report.tables.comparison import comparison_tables, every_scaling_table
from raybench.spec.knobs import KnobValue

if TYPE_CHECKING:
    from rich.console import Console


def print_comparison(studies: SideBySide, console: Console) -> None:
    """All tables that have something to say, then who has nothing in common with the first."""
    from rich.text import Text

    for table in comparison_tables(studies):
        console.print(rich_table(table, width_on(console)))
        if table.caption:
            console.print(Text(table.caption + "\n"))
    alone = [other.name for other in studies.others if not other.same_trials]
    if alone:
        console.print(Text(f"no trial in common with {studies.first.name}: {', '.join(alone)}"))


def write_comparison(directory: Path, studies: SideBySide, command: str) -> list[Path]:
    """Write report.html and the other kinds of files of a report; their paths, ``report.html`` first.

    ``command`` makes them again. Raises ``OSError`` where ``directory`` cannot be written.
    """
    plots = [
        *drawn("scaling", "The defaults over the devices", defaults_plot(studies.sides), draw_scaling),
        *drawn("batches", "Efficiency against batch", batches_plot(studies.sides), draw_batches),
        *(plot for side in studies.sides for plot in _waterfall(side)),
    ]
    every = every_scaling_table(studies)
    tables = comparison_tables(studies)
    places = {
        "sides": Place("Side by side", tables=tuple(tables[:1])),
        "plots": Place("Plots", tuple(plot.name for plot in plots)),
        "more": Place("What differs, and the same trials", tables=tuple(tables[1:])),
        "every": Place("Every trial of the curves", tables=(every,)),
    }
    name = " and ".join(side.name for side in studies.sides)
    pages = make_pages(
        directory,
        {"results": [f"{side.name}: {side.environment.hostname}" for side in studies.sides]},
        asked_by=command,
        again=command,
        name=name,
        box=[Clause(side.name, answer_of(side.results)) for side in studies.sides],
        sections=make_sections(places, plots),
        method=[f"{side.name}: {method_words(side.results)[0]}" for side in studies.sides],
    )
    contents = {
        **pages,
        "summary.csv": formats.rows_csv(_rows(studies)),
        "summary.tex": formats.to_tex(every, name),
    }
    return write_files(directory, contents, plots)


def _waterfall(side: Side) -> Iterator[DrawnPlot]:
    title = f"Where the time goes: {side.name}"
    place = re.sub(r"[^A-Za-z0-9_-]+", "-", side.name).strip("-")
    yield from drawn(f"waterfall-{place}", title, waterfall_plot(side.results, side.name), draw_waterfall)


def _rows(studies: SideBySide) -> list[dict[str, KnobValue]]:
    """Those of each side's summary.csv with its name before them; a column that one side lacks is empty."""
    rows = [{"results": side.name, **each.row()} for side in studies.sides for each in side.results.summaries]
    columns: dict[str, None] = {}
    for row in sorted(rows, key=len, reverse=True):
        columns |= dict.fromkeys(row)
    return [{name: row.get(name) for name in columns} for row in rows]
