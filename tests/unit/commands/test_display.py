"""What the user sees while a study runs, and where everything else goes."""

import io
import sys

import pytest
from rich.console import Console

from raybench.commands.console import PIPED_WIDTH, make_console
from raybench.commands.progress import Display
from raybench.records.messages import Progress
from raybench.report.table import Column, make_table, rich_table, width_on

COLUMNS = 80


def test_a_piped_table_is_as_wide_as_what_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal it fills the line."""
    rows = [("1", "2"), ("a longer cell", "x")]
    columns = [Column("a", lambda row: row[0], right=True), Column("b", lambda row: row[1])]
    table = make_table("t", "", columns, rows)
    for file in (None, io.StringIO()):
        console = make_console(file)
        console.print(rich_table(table, width_on(console)))
        told = capsys.readouterr().out if file is None else file.getvalue()
        assert 15 < max(map(len, told.splitlines())) < 30
    terminal = Console(force_terminal=True, width=COLUMNS, file=io.StringIO())
    assert width_on(terminal) == COLUMNS


def test_piped_nothing_is_wider_than_the_variable_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert make_console(io.StringIO()).width == PIPED_WIDTH
    monkeypatch.setenv("COLUMNS", "72")
    assert make_console(io.StringIO()).width == 72


def test_phases_and_time_left_are_shown(capsys):
    console = Console(force_terminal=True, width=COLUMNS, file=sys.stdout)
    display = Display(console)
    display.stage("Searching")
    display.trial("2 devices, batch 32", done=2, total=12, left_s=95.0)
    display.progress(Progress("measure", "round 7"))
    console.print(display._render())
    shown = capsys.readouterr().out
    assert "Searching: trial 3 of 12, about 95 s left" in shown
    assert "2 devices, batch 32: measure round 7" in shown
