"""How much compute hides communication."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.labels import devices_words
from raybench.analysis.overlap import HIDDEN, BatchOverlap, Measure, OverlapPoint
from raybench.analysis.results import StudyResults
from raybench.report.format import count, duration_words, milliseconds, sentence, share_of_step
from raybench.report.tables.base import Column, Table, empty_table, make_table
from raybench.spec.counted import counted

TITLE = "How much compute hides communication"


@dataclass(frozen=True)
class _Row:
    """One batch of a setting."""

    setting: BatchOverlap
    point: OverlapPoint


_OF: dict[Measure, str] = {
    "communication": "transfers that no compute hides",
    "T_comm": "all that more devices add, T(n) - T(1)",
}

_COLUMNS: list[Column[_Row]] = [
    Column("setting", lambda row: row.setting.label),
    Column("batch per device", lambda row: f"{row.point.batch_size:,}", right=True),
    Column("compute in a step, ms", lambda row: milliseconds(row.point.compute_s), right=True),
    Column("share of T(n)", lambda row: share_of_step(row.point.fraction), right=True),
    Column("the share is", lambda row: _OF[row.setting.measure]),
    Column("n", lambda row: count(row.point.fraction), right=True),
]


def hiding_table(results: StudyResults) -> Table:
    """The compute in a step above which communication is hidden; empty where batches do not tell."""
    settings, num_others = results.overlaps.shown, results.overlaps.num_others
    if not settings:
        return empty_table(TITLE)
    words = " ".join(sentence(hiding_words(setting)) for setting in settings)
    caption = (
        "Compute is the step of one device alone, T(n) the step on "
        f"{devices_words(settings[0].world_size)}. Hidden: at most {HIDDEN:.0%} of T(n). {words}"
    )
    if num_others:
        caption += (
            f" Not told: {counted(num_others, 'setting')} more that "
            f"{'was' if num_others == 1 else 'were'} measured at several batches."
        )
    rows = [_Row(setting, point) for setting in settings for point in setting.points]
    return make_table(TITLE, caption, _COLUMNS, rows)


def hiding_words(setting: BatchOverlap) -> str:
    """Where the share falls below the limit, in a sentence."""
    name = f"{setting.label}: " if setting.label != "default" else ""
    least, most = (setting.points[place].compute_s.value for place in (0, -1))
    below, above = setting.below, setting.above
    if setting.compute_s is not None and below and above:
        low = f"below {duration_words(least)}" if setting.low_s is None else duration_words(setting.low_s)
        high = f"above {duration_words(most)}" if setting.high_s is None else duration_words(setting.high_s)
        bracket = " and ".join(duration_words(point.compute_s.value) for point in (below, above))
        batches = f"batch {below.batch_size:,} and {above.batch_size:,}"
        if setting.is_wide or (setting.low_s is None and setting.high_s is None):
            return f"{name}hidden where a step has more compute than somewhere between {bracket} ({batches})."
        return (
            f"{name}hidden where a step has more than about {duration_words(setting.compute_s)} "
            f"[{low}, {high}] of compute, interpolated between {bracket} ({batches})."
        )
    if setting.is_hidden_everywhere:
        return f"{name}hidden at every batch measured, from {duration_words(least)} of compute on."
    return f"{name}not reached up to {duration_words(most)} of compute in a step."
