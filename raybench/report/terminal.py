"""What a study prints at its end: a table as wide as the terminal, and the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybench.analysis.estimates.efficiency import scaling
from raybench.analysis.labels import setting_words
from raybench.analysis.results import StudyResults
from raybench.records.record import TrialRecord
from raybench.report.answer import answer_of
from raybench.report.tables.tables import in_order, mark
from raybench.report.wording import bound_words, figures, percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

TERMINAL_WIDTH = 80
MOST_TERMINAL_ROWS = 12


def terminal_table(results: StudyResults, width: int = TERMINAL_WIDTH) -> RichTable:
    """The trials for a terminal, ``width`` columns wide at most."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=box.SIMPLE_HEAD, width=width, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("devices", justify="right", no_wrap=True)
    table.add_column("setting", ratio=1, overflow="fold")
    for heading in ("step time", "samples/s", "efficiency"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    shown = in_order(results, "scaling", "verification") or in_order(results, "search")
    if len(shown) > MOST_TERMINAL_ROWS:
        shown = _most_telling(results, shown)
    for record in shown:
        found = results.scaling(record)
        step_s = found.step_time_s
        cells = (
            str(record.config.world_size),
            results.label(record) + mark(record),
            f"{figures(step_s.value * 1e3)} ms ±{step_s.relative_half_width:.0%}",
            figures(found.throughput_samples_per_s.value),
            percent(found.efficiency) if found.efficiency and record.config.world_size > 1 else "",
            str(step_s.n),
        )
        table.add_row(*(Text(cell) for cell in cells))
    for record in results.failed[:MOST_TERMINAL_ROWS]:
        label = f"{results.label(record)}: {record.state}"
        table.add_row(str(record.config.world_size), Text(label), *("–",) * 3, "")
    left_out = len(results.records) - table.row_count
    if left_out:
        table.caption = f"{left_out} of {len(results.records)} trials more in the report"
    return table


def _most_telling(results: StudyResults, shown: list[TrialRecord]) -> list[TrialRecord]:
    """The default's trials, then the fastest at the target, as many as a screen holds."""
    default = {point.trial_id for curve in results.curves if curve.is_default for point in curve.points}
    others = [
        record
        for record in shown
        if record.trial_id not in default and record.config.world_size == results.target_world_size
    ]
    fastest = sorted(others, key=lambda record: -scaling(record).throughput_samples_per_s.value)
    first = [record for record in shown if record.trial_id in default][:MOST_TERMINAL_ROWS]
    return first + fastest[: max(MOST_TERMINAL_ROWS - len(first), 0)]


def print_summary(results: StudyResults, console: Console) -> None:
    """The table, then the answer in words."""
    from rich.text import Text

    for each in results.largest:
        batch = "none" if each.batch_size is None else f"{each.batch_size:,}"
        share = each.fitting.share if each.fitting else None
        taken = "" if share is None else f", {share:.0%} of the memory"
        setting = setting_words(each.setting, ["strategy", "precision"])
        console.print(Text(f"largest batch ({setting}): {batch}{taken}; {bound_words(each)}"))
    if results.records:
        console.print(terminal_table(results, min(console.width, 100)))
    console.print(Text(answer_of(results), style="bold"))
