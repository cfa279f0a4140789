"""What a study prints at its end: a table as wide as the terminal, and the answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from raybench.analysis.findings.finding import FindingName, Severity
from raybench.analysis.results import StudyResults
from raybench.analysis.scaling import Scaling
from raybench.records.record import TrialRecord
from raybench.report.answer import SMOKE, answer
from raybench.report.finding_texts import evidence, next_step
from raybench.report.format import factor, figures, percent, relative_words
from raybench.report.sections.scaling import Row, more_settings, scaling_rows
from raybench.report.sections.settings import batch_cell, bound_words, fit_words, share_cell
from raybench.report.sections.verification import verification_lines
from raybench.report.table import NONE, Column, known, make_table, rich_table, width_on
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

TERMINAL_WIDTH = 80
MOST_ROWS, MOST_FAILED = 12, 4
MOST_WHOLE = 2  # settings with all of their numbers of devices
FRAME_INDENT = "    "
# "model.py:31, in loss: return ..." as ``workloads.frames`` has it; a library's after "... 2 frames of torch
# below it: "
FRAME = re.compile(r"(\.\.\. .*? below it: )?(.+?:\d+)(, in [^:]+)(?:: (.*))?")
WITHOUT_NUMBERS = (FindingName.FAILED, FindingName.NOT_REACHED)


def print_summary(results: StudyResults, console: Console, *, commands: bool = True) -> None:
    """The table, then the answer in words; without ``commands`` where one that goes on is said elsewhere."""
    from rich.text import Text

    for largest in results.largest:
        share = share_cell(largest)
        taken = f", {share} of the memory" if share else ""
        setting = fit_words(results.study, largest)
        told = f"{batch_cell(largest)}{taken}; {bound_words(largest)}"
        console.print(Text(f"largest batch ({setting}): {told}"))
    if results.records:
        console.print(terminal_table(results, width_on(console)))
    for line in verification_lines(results):
        console.print(Text(line))
    _print_failures(results, console, commands)
    if results.study.is_smoke:
        console.print(Text(SMOKE))
    for each in answer(results):
        console.print(Text(each.words, style="bold"))


def _print_failures(results: StudyResults, console: Console, commands: bool) -> None:
    """What there are no numbers of, but should be: how many trials, why, where in the code, what to do."""
    from rich.text import Text

    told = [each for each in results.findings if each.name in WITHOUT_NUMBERS]
    told = [each for each in told if each.severity is not Severity.NOTE]
    for place, each in enumerate(told):
        console.print(Text(f"{each.name}: {evidence(each)}"))
        for frame in each.frames:
            for line in frame_lines(frame, width_on(console) or TERMINAL_WIDTH):
                console.print(Text(line), soft_wrap=True)
        console.print(Text(f"  next: {next_step(each)}"))
        later = [other.command for other in told[place + 1 :]]  # of several alike the last stands there
        if commands and each.command and each.command not in later:
            console.print(Text(f"    {each.command}"), soft_wrap=True)  # it is copied as one line


def frame_lines(frame: str, width: int) -> list[str]:
    """A frame of a traceback in lines for a terminal: file and line are whole on one, the code is cut.

    They are clicked, or copied: a path that is longer than the terminal is left to it to wrap.
    """
    if len(FRAME_INDENT) + len(frame) <= width:
        return [f"{FRAME_INDENT}{frame}"]
    found = FRAME.fullmatch(frame)
    if found is None:
        return [f"{FRAME_INDENT}{frame}"]
    below, place, name, code = found.groups(default="")
    lines, indent = [], FRAME_INDENT
    if below:
        lines.append(f"{indent}{below.rstrip()}")
        indent += "  "
    if len(f"{indent}{place}{name}") > width:
        lines += [f"{indent}{place},", f"{indent}  {name.removeprefix(', ')}"]
    else:
        lines.append(f"{indent}{place}{name}")
    if code:
        room = width - len(indent) - 2
        lines.append(f"{indent}  {code if len(code) <= room else code[: room - 4] + ' ...'}")
    return lines


def terminal_table(results: StudyResults, width: int | None = TERMINAL_WIDTH) -> RichTable:
    """The report's first table as far as a screen holds it, trials without numbers last.

    ``width``: in columns; None: as wide as what is in it.
    """
    every = scaling_rows(results)
    ends = {point.world_size for setting in results.settings for point in (setting.points[0], setting.main)}
    whole = {point.record.trial_id for setting in results.settings[:MOST_WHOLE] for point in setting.points}
    shown = [row for row in every if row.point.world_size in ends or row.point.record.trial_id in whole]
    rows: list[Row | TrialRecord] = [*shown[:MOST_ROWS], *results.failed[:MOST_FAILED]]
    left_out = {
        "row": len(every) - len(shown[:MOST_ROWS]),
        "setting": more_settings(results),
        "failed trial": max(len(results.failed) - MOST_FAILED, 0),
    }
    words = [plural(number, name) for name, number in left_out.items() if number]
    caption = f"{', '.join(words)} more in report.html" if words else ""
    table = make_table("", caption, _columns(results), rows)
    drawn = rich_table(table, width, tight=True)
    drawn.caption = table.caption or None
    return drawn


def _columns(results: StudyResults) -> list[Column[Row | TrialRecord]]:
    """Of settings with step times and of failed trials."""

    def of_row(words: Callable[[Scaling], str]) -> Callable[[Row | TrialRecord], str]:
        return lambda row: words(row.point.scaling) if isinstance(row, Row) else NONE

    def setting(row: Row | TrialRecord) -> str:
        return row.short if isinstance(row, Row) else f"{results.label(row)}: {row.state}"

    def size(row: Row | TrialRecord) -> str:
        return str((row.point.config if isinstance(row, Row) else row.config).world_size)

    def step_time(found: Scaling) -> str:
        return f"{figures(found.step_time_s.value * 1e3)} ms {relative_words(found.step_time_s)}"

    def speedup(found: Scaling) -> str:
        if found.speedup is None or found.baseline is None or found.is_baseline:
            return ""
        few = found.baseline.world_size
        return f"{factor(found.speedup)}{f' over {few}' if few > 1 else ''}"

    def efficiency(found: Scaling) -> str:
        return known(found.efficiency, percent, "") if not found.is_baseline else ""

    return [
        Column("devices", size, right=True),
        Column("setting", setting),
        Column("step time", of_row(step_time), right=True),
        Column("samples/s", of_row(lambda found: figures(found.throughput_samples_per_s.value)), right=True),
        Column("speed-up", of_row(speedup), right=True),
        Column("efficiency", of_row(efficiency), right=True),
    ]
