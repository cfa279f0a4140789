"""What a study prints at its end: a table as wide as the terminal, and the answer."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from raybench.analysis.findings.finding import FindingName, Severity
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.report.answer import answer, to_use
from raybench.report.finding_texts import evidence, next_step
from raybench.report.format import factor, figures, relative_words
from raybench.report.sections.scaling import (
    DEVICES,
    EFFICIENCY,
    Row,
    more_settings,
    scaling_rows,
    speedup_cell,
)
from raybench.report.sections.settings import largest_table, verification_table
from raybench.report.table import Column, make_table, numbers, print_table, rich_table, width_on
from raybench.spec.plural import plural

MOST_ROWS = 12
WITHOUT_NUMBERS = (FindingName.FAILED, FindingName.NOT_REACHED)


def print_summary(results: StudyResults, console: Console, *, commands: bool = True) -> None:
    """The table, then the answer in words; without ``commands`` where one that goes on is said elsewhere."""
    print_table(largest_table(results), console)
    if results.settings:
        console.print(terminal_table(results, width_on(console)))
    print_table(verification_table(results), console)
    _print_failures(results, console, commands)
    for each in answer(results):
        console.print(Text(each.line, style="bold"))
    if use := to_use(results):
        console.print(Text(f"\nUse it: {use.label} as code, at the end of the report"))


def _print_failures(results: StudyResults, console: Console, commands: bool) -> None:
    """What there are no numbers of, but should be: how many trials, why, where in the code, what to do."""
    told = [
        each
        for each in results.diagnosis
        if each.name in WITHOUT_NUMBERS and each.severity is not Severity.NOTE
    ]
    for each in told:
        if results.complete or len(told) > 1:  # else it is the answer
            console.print(Text(f"{each.name}: {evidence(each)}"))
        if each.frame:  # the terminal wraps it: its path stays one
            console.print(Text(f"    {each.frame}"), soft_wrap=True)
        console.print(Text(f"  next: {next_step(each)}"))
    for command in dict.fromkeys(each.command for each in told if each.command and commands):
        console.print(Text(f"    {command}"), soft_wrap=True)  # it is copied as one line


def terminal_table(results: StudyResults, width: int | None) -> RichTable:
    """The report's first table as far as a screen holds it.

    ``width``: in columns; None: as wide as what is in it.
    """
    rows = scaling_rows(results)
    left_out = {"row": len(rows) - MOST_ROWS, "setting": more_settings(results)}
    words = [plural(number, name) for name, number in left_out.items() if number > 0]
    drawn = rich_table(make_table("", "", _COLUMNS, rows[:MOST_ROWS]), width)
    drawn.caption = f"{', '.join(words)} more in report.html" if words else None
    return drawn


def _step_time(step_s: Estimate) -> str:
    return f"{figures(step_s.value * 1e3)} ms {relative_words(step_s)}"


_COLUMNS: list[Column[Row]] = [
    DEVICES,
    Column("setting", lambda row: row.short),
    numbers("step time", lambda row: row.point.scaling.step_time_s, _step_time),
    numbers("samples/s", lambda row: row.point.scaling.throughput_samples_per_s.value, figures),
    Column("speed-up", lambda row: speedup_cell(row.point.scaling, factor), right=True),
    EFFICIENCY,
]
