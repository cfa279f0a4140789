"""Every configuration on several devices with its status."""

from __future__ import annotations

from raybench.analysis.findings.configurations import DiagnosedConfiguration
from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.efficiency import EXCELLENT, GOOD
from raybench.report.format import EXPLORATORY, count, percent, times
from raybench.report.tables.base import (
    MOST_ROWS,
    Column,
    Table,
    empty_table,
    first_rows_words,
    known,
    make_table,
)

TITLE = "Configurations"
_COLUMNS: list[Column[DiagnosedConfiguration]] = [
    Column("configuration", lambda each: each.label),
    Column("status", lambda each: str(each.status) if each.status else "no baseline"),
    Column("speed-up", lambda each: known(each.scaling.speedup, times, ""), right=True),
    Column("efficiency", lambda each: known(each.scaling.efficiency, percent, ""), right=True),
    Column("n", lambda each: count(each.scaling.step_time_s), right=True),
]


def configurations_table(results: StudyResults) -> Table:
    """The configurations at the headline's world size, the best efficiency first."""
    configurations = results.configurations
    if not configurations:
        return empty_table(TITLE)
    at_once = f" that holds for all {len(configurations)} at once" if len(configurations) > 1 else ""
    caption = (
        f"On {devices_words(configurations[0].record.config.world_size)}, mean over n rounds with a 95% "
        f"interval{at_once}. {EXPLORATORY} "
        f"Excellent: efficiency at least {EXCELLENT:.0%}; good: {GOOD:.0%}; poor: less; negative: slower "
        "than one device, its whole interval by itself. "
        "A batch is a choice about speed alone: how many epochs it needs is another question."
    )
    number = len(configurations)
    if number > MOST_ROWS:
        caption += f" {first_rows_words(MOST_ROWS, number)}"
    return make_table(TITLE, caption, _COLUMNS, configurations[:MOST_ROWS])
