"""What if: predicted step times beside measured ones."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from raybench.analysis.labels import devices_words
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.results import StudyResults
from raybench.analysis.whatif.predictions import Predicted, WhatIf
from raybench.analysis.whatif.study import BucketChoice
from raybench.report.format import figures, milliseconds, percent, plain_percent, sentence
from raybench.report.tables.base import NONE, Column, Table, empty_table, known, make_table
from raybench.spec.counted import counted

TITLE = "What if: predicted from one trial"

_COLUMNS: list[Column[Predicted]] = [
    Column("what if", lambda row: row.words),
    Column("buckets", lambda row: str(row.num_buckets), right=True),
    Column("predicted step, ms", lambda row: milliseconds(row.step_time_s), right=True, stays=True),
    Column("communication not hidden, ms", lambda row: figures(row.exposed_s * 1e3), right=True),
    Column("samples/s", lambda row: f"{row.throughput_samples_per_s.value:,.0f}", right=True),
    Column("faster by", lambda row: plain_percent(row.gain), right=True, stays=True),
    Column("measured step, ms", lambda row: known(row.measured_s, milliseconds), right=True),
    Column("off by", lambda row: f"{row.error:+.1%}" if row.error else NONE, right=True),
]


def buckets_table(results: StudyResults) -> Table:
    """What the default's trial alone says of the buckets; empty where it says nothing."""
    chosen = results.what_if
    if chosen is None:
        return empty_table(TITLE)
    table = what_if_table(results, chosen.found)
    return Table(table.title, f"{sentence(choice_words(chosen))} {table.caption}", table.columns, table.rows)


def what_if_table(results: MeasuredStudy, found: WhatIf) -> Table:
    """A row for each change, the measured step beside the predicted one where there is one."""
    record = found.record
    errors = [abs(each.error) for each in found.points if each.error is not None and not _is_own(each, found)]
    own = found.step_time_s
    notes = dict.fromkeys([*found.notes, *(note for each in found.points for note in each.notes)])
    beside = (
        f" Measured, not predicted from: {counted(len(errors), 'step')}, median error {median(errors):.1%}."
        if errors
        else ""
    )
    caption = (
        f"From trial {record.trial_id} ({results.label(record)}, {devices_words(record.config.world_size)}): "
        f"{milliseconds(own)} ms measured, {figures(found.simulated_s * 1e3)} ms simulated before the "
        f"difference is carried along.{beside} {_sentence(notes)}"
    )
    return make_table(TITLE, caption, _COLUMNS, found.points)


def choice_words(chosen: BucketChoice) -> str:
    """What bucket the study would choose: a sentence."""
    first, best = chosen.first, chosen.best
    head = f"what if, on {devices_words(chosen.found.record.config.world_size)}"
    if not chosen.is_own:
        return f"{head}: {best.words} would be {percent(best.gain)} faster than the default."
    own = chosen.found.record.config.setting
    asked = [each.setting.bucket_cap_mb for each in chosen.found.points if each.setting != own]
    if not asked:
        return f"{head}: no buckets but the default's are asked for."
    caps = ", ".join("default" if isinstance(cap, str) else f"{cap:g}" for cap in asked)
    none = f"none of {caps} MiB is" if len(asked) > 1 else f"{caps} MiB is not"
    if first.setting != own:  # a further trial may have them the other way round
        nearest = f"{first.words}: {percent(first.gain, sign=True)}"
        return f"{head}: {none} predicted to be surely faster than the default ({nearest})."
    return f"{head}: {none} predicted to be faster than the default."


def point_words(row: Predicted) -> str:
    """A prediction in a line."""
    measured = "" if row.measured_s is None else f", measured {milliseconds(row.measured_s)} ms"
    return f"{row.words}: {milliseconds(row.step_time_s)} ms{measured}"


def _sentence(notes: Iterable[str]) -> str:
    text = "; ".join(notes)
    return f"{sentence(text)}."


def _is_own(row: Predicted, found: WhatIf) -> bool:
    return row.setting == found.record.config.setting and row.change.link_bits_per_s is None
