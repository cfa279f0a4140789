"""The report of measurements made elsewhere: its files, its answer in a line, what the terminal shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raybench.analysis.simulate.outlook import Outlook
from raybench.report import formats
from raybench.report.answer import Clause
from raybench.report.pages import anew, make_pages, quoted, write_files
from raybench.report.plots.drawn import DrawnPlot, drawn
from raybench.report.prediction import (
    draw_prediction,
    measured_words,
    outlook_sentences,
    prediction_plot,
    prediction_rows,
    prediction_table,
    print_table,
    tradeoff_table,
)
from raybench.report.sections import Place, make_sections
from raybench.report.tables.base import Table
from raybench.report.tables.imported import imported_row, imported_table

if TYPE_CHECKING:
    from rich.console import Console

TIMES_ALONE = (
    "The file has step times alone: they were not measured in the same rounds, so speed-ups and efficiencies "
    "hold whatever changed between the measurements."
)


def write_imported_report(directory: Path, file: Path, models: Sequence[Outlook]) -> list[Path]:
    """Write all files of ``directory`` and return their paths, ``report.html`` first.

    ``file`` is what was read. Raises ``OSError`` where the directory cannot be written.
    """
    plots = [plot for place, model in enumerate(models) for plot in _plots(place, model)]
    tables = tuple(table for model in models for table in _tables(model))
    scaling = f" --scaling {models[0].forecast.group.scaling}" if models else ""
    command = f"python -m raybench.study report {quoted(file)}{scaling} --output {anew(directory)}"
    place = Place("More devices", tuple(plot.name for plot in plots), tables)
    pages = make_pages(
        directory,
        {},
        asked_by=command,
        again=command,
        name=file.stem,
        box=[Clause("Result", imported_answer(models))],
        sections=make_sections({"predictions": place}, plots),
        method=[TIMES_ALONE, *_sentences(models)],
    )
    rows = [imported_row(model.forecast.group, each) for model in models for each in model.scalings]
    contents = {
        **pages,
        "summary.csv": formats.rows_csv(rows),
        "summary.tex": formats.to_tex(_tables(models[0])[0], file.stem),
        "predictions.csv": formats.rows_csv(prediction_rows(models)),
    }
    return write_files(directory, contents, plots)


def print_imported(models: Sequence[Outlook], console: Console) -> None:
    """The measured steps of each model, then the answer."""
    from rich.text import Text

    for model in models:
        print_table(_tables(model)[0], console)
    console.print(Text(imported_answer(models), style="bold"))


def imported_answer(models: Sequence[Outlook]) -> str:
    """How each model scales: a line, its clauses separated by semicolons."""
    named = len(models) > 1
    clauses = []
    for model in models:
        name = f"{model.forecast.group.model}: " if named else ""
        clauses += [f"{name}{words}" for words in measured_words(model)]
    return "; ".join(clauses)


def _tables(model: Outlook) -> list[Table]:
    group = model.forecast.group
    tables = (
        imported_table(group, model.scalings),
        prediction_table(model, f"{group.model}: predicted", refusals=True),
        tradeoff_table(model, f"{group.model}: time and cost"),
    )
    return [table for table in tables if table.rows]


def _plots(place: int, model: Outlook) -> Iterator[DrawnPlot]:
    name = "prediction" if place == 0 else f"prediction-{place + 1}"
    title = f"{model.forecast.group.model}: more devices"
    yield from drawn(name, title, prediction_plot(model), draw_prediction)


def _sentences(models: Sequence[Outlook]) -> Iterator[str]:
    for model in models:
        name = f"{model.forecast.group.model}: " if len(models) > 1 else ""
        yield from (f"{name}{line}." for line in outlook_sentences(model, costs=False))
