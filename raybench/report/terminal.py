"""What a study prints at its end: a table as wide as the terminal, and the answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from raybench.analysis.findings.finding import FindingName, Severity
from raybench.analysis.findings.of_study import FAILED
from raybench.analysis.labels import combination_words
from raybench.analysis.results import StudyResults
from raybench.records.record import TrialRecord
from raybench.report.answer import answer
from raybench.report.finding_texts import evidence, next_step
from raybench.report.format import figures, percent, relative_words
from raybench.report.sections.configurations import verification_lines
from raybench.report.sections.search import batch_cell, bound_words, share_cell
from raybench.report.sections.trials import in_order, label_and_mark
from raybench.report.table import NONE, Column, Table, devices, make_table, rich_table, width_on
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

TERMINAL_WIDTH = 80
MOST_TERMINAL_ROWS = 12
ELSEWHERE = {"search": " (in the search)"}  # of a table of curves
FRAME_INDENT = "    "
# "model.py:31, in loss: return ..." as ``workloads.frames`` has it; a library's after "... 2 frames of torch
# below it: "
FRAME = re.compile(r"(\.\.\. .*? below it: )?(.+?:\d+)(, in [^:]+)(?:: (.*))?")
WITHOUT_NUMBERS = frozenset({*FAILED.values(), FindingName.NOT_REACHED})


def print_summary(results: StudyResults, console: Console, *, commands: bool = True) -> None:
    """The table, then the answer in words; without ``commands`` where one that goes on is said elsewhere."""
    from rich.text import Text

    for largest in results.largest:
        share = share_cell(largest)
        taken = f", {share} of the memory" if share else ""
        setting = combination_words(results.study, largest.setting, always=["strategy", "precision"])
        told = f"{batch_cell(largest)}{taken}; {bound_words(largest)}"
        console.print(Text(f"largest batch ({setting}): {told}"))
    if results.records:
        console.print(terminal_table(results, width_on(console)))
    for line in verification_lines(results):
        console.print(Text(line))
    _print_failures(results, console, commands)
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
    """The trials for a terminal, ``width`` columns wide; None: as wide as what is in it."""
    table = _trials_table(results)
    drawn = rich_table(table, width, tight=True)
    drawn.caption = table.caption or None
    return drawn


def _trials_table(results: StudyResults) -> Table:
    """As many trials as a screen holds, those without numbers last."""
    shown = in_order(results, "scaling") or in_order(results, "search")
    if len(shown) > MOST_TERMINAL_ROWS:
        shown = _most_telling(results, shown)
    recommended = _recommended(results)
    if recommended is not None and not any(each.config == recommended.config for each in shown):
        shown = [*shown[: MOST_TERMINAL_ROWS - 1], recommended]
    shown += results.failed[:MOST_TERMINAL_ROWS]
    total = len(results.complete) + len(results.failed)
    left_out = total - len(shown)
    caption = f"{left_out} of {plural(total, 'trial')} more in report.html" if left_out else ""
    return make_table("", caption, _trial_columns(results), shown)


def _trial_columns(results: StudyResults) -> list[Column[TrialRecord]]:
    """Of trials with step times and of failed ones."""
    curve = in_order(results, "scaling")

    def setting(record: TrialRecord) -> str:
        if record.steps is None:
            return f"{results.label(record)}: {record.state}"
        where = ELSEWHERE.get(record.request.role, "") if curve else ""
        return f"{label_and_mark(results, record)}{where}"

    def step_time(record: TrialRecord) -> str:
        if record.steps is None:
            return NONE
        step_s = results.scalings[record.trial_id].step_time_s
        return f"{figures(step_s.value * 1e3)} ms {relative_words(step_s)}"

    def rate(record: TrialRecord) -> str:
        if record.steps is None:
            return NONE
        return figures(results.scalings[record.trial_id].throughput_samples_per_s.value)

    def efficiency(record: TrialRecord) -> str:
        if record.steps is None:
            return NONE
        share = results.scaling(record).efficiency
        return percent(share) if share and record.config.world_size > 1 else ""

    def rounds(record: TrialRecord) -> str:
        return "" if record.steps is None else str(results.scalings[record.trial_id].step_time_s.n)

    return [
        Column("devices", devices, right=True),
        Column("setting", setting),
        Column("step time", step_time, right=True),
        Column("samples/s", rate, right=True),
        Column("efficiency", efficiency, right=True),
        Column("n", rounds, right=True),
    ]


def _recommended(results: StudyResults) -> TrialRecord | None:
    """A trial of the setting that the study recommends: of its curve, else the one closest to the default's.

    None where that is the default, or was measured as the change of another setting only.
    """
    recommendation = results.recommendation
    if recommendation is None or recommendation.is_default:
        return None
    of_it = [each for each in results.complete if each.steps and each.config == recommendation.config]
    by_role = {each.request.role: each for each in of_it}
    return next((by_role[role] for role in ("scaling", "search") if role in by_role), None)


def _most_telling(results: StudyResults, shown: list[TrialRecord]) -> list[TrialRecord]:
    """The default's trials, then the fastest at the target, as many as a screen holds."""
    default = {point.trial_id for curve in results.curves if curve.is_default for point in curve.points}
    others = [
        record
        for record in shown
        if record.trial_id not in default and record.config.world_size == results.target_world_size
    ]
    fastest = sorted(others, key=lambda record: -results.scaling(record).throughput_samples_per_s.value)
    first = [record for record in shown if record.trial_id in default][:MOST_TERMINAL_ROWS]
    return first + fastest[: max(MOST_TERMINAL_ROWS - len(first), 0)]
