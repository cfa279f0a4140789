"""Each recorded study's report, drawn once in this process as ``raybench report DIR`` draws it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from raybench.analysis.results import StudyResults
from raybench.commands.console import make_console
from raybench.commands.report import write_and_print
from raybench.records.store import ResultsDirectory
from raybench.report import document
from raybench.report.answer import answer_of
from raybench.report.sections.scaling import scaling_rows
from raybench.report.terminal import terminal_table
from tests.corpus.invariants import Drawn
from tests.corpus.make import STUDIES, unpack
from tests.corpus.shown import ShownTable


@pytest.fixture(scope="session")
def draw(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Drawn]:
    """The report of a recorded study, by its name."""
    drawn: dict[str, Drawn] = {}

    def once(name: str) -> Drawn:
        if name not in drawn:
            drawn[name] = _drawn(unpack(name, tmp_path_factory.mktemp("corpus") / name))
        return drawn[name]

    return once


@pytest.fixture(params=STUDIES)
def drawn(request: pytest.FixtureRequest, draw: Callable[[str], Drawn]) -> Drawn:
    """Each of them."""
    return draw(request.param)


def _drawn(directory: Path) -> Drawn:
    found: list[StudyResults] = []
    with pytest.MonkeyPatch.context() as patch, ResultsDirectory.open_readonly(directory) as store:
        # no pictures, which take most of a report's time; what they would be drawn from is the analysis
        patch.setattr(document, "drawn", lambda *_: ())
        make = document.make_sections
        patch.setattr(document, "make_sections", lambda results: found.append(results) or make(results))
        with (directory / "printed").open("w") as printed:
            assert write_and_print(store, make_console(printed)) == 0
    results, report = found[0], directory / "report"
    return Drawn(
        results=results,
        records=tuple(store.latest().values()),
        markdown=(report / "report.md").read_text(),
        page=(report / "report.html").read_text(),
        diagnosis=(report / "diagnosis.md").read_text(),
        summary=(report / "summary.csv").read_text(),
        answer=answer_of(results),
        terminal=_table_of_terminal(results),
    )


def _table_of_terminal(results: StudyResults) -> ShownTable:
    """The table that the terminal shows, cell by cell, before it is made as wide as the terminal."""
    columns = terminal_table(results, None).columns
    cells = [[str(cell) for cell in column.cells] for column in columns]
    headings = [str(column.header) for column in columns]
    rows = [dict(zip(headings, row, strict=True)) for row in zip(*cells, strict=True)]
    labels = {(each.short, str(each.point.world_size)): each.label for each in scaling_rows(results)}
    for row in rows:  # the terminal has room for what differs only
        row["setting"] = labels.get((row["setting"], row["devices"]), row["setting"])
    return ShownTable("the terminal", "", tuple(rows))
