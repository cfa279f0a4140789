"""Predicted steps of one trial next to measured ones, and the gradients and buckets of the model."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from statistics import median

from raybench.analysis.labels import devices_words, knob_words
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.overlap import Buckets
from raybench.analysis.results import StudyResults
from raybench.analysis.simulate.timeline import BucketCap
from raybench.analysis.simulate.what_if import BucketChoice, Predicted, WhatIf
from raybench.report.format import figures, mebibytes, milliseconds, percent, plain_percent, sentence
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


BUCKETS_TITLE = "The gradients and their buckets"
MOST_SIZES = 6  # runs of equal buckets in a cell


def _cap_words(cap: BucketCap) -> str:
    return knob_words("bucket_cap_mb", cap)


def _same_words(row: Buckets) -> str:
    return "" if row.same_as is None else _cap_words(row.same_as)


_BUCKET_COLUMNS: list[Column[Buckets]] = [
    Column("asked", lambda row: _cap_words(row.cap)),
    Column("buckets", lambda row: f"{len(row.sizes):,}", right=True),
    Column("sizes, MiB", lambda row: sizes_words(row.sizes)),
    Column("known from", lambda row: "DDP" if row.is_measured else "DDP's rule"),
    Column("the same as", _same_words),
]


def model_buckets_table(results: StudyResults) -> Table:
    """What each bucket size comes to; empty where no trial tells."""
    model = results.model_buckets
    if model is None:
        return empty_table(BUCKETS_TITLE)
    numbers = "" if model.num_parameters is None else f"{model.num_parameters:,} trained parameters"
    tensors = "" if model.num_tensors is None else f"in {model.num_tensors:,} tensors"
    words = f"{numbers} {tensors}".strip()
    caption = (
        f"{f'{words}: ' if words else ''}{mebibytes(model.gradient_bytes)} MiB of gradients on each rank, "
        "buckets in the order in which they are sent."
    )
    if model.doubles:
        caption += " What gives the same buckets is the same setting, and counts once."
    return make_table(BUCKETS_TITLE, caption, _BUCKET_COLUMNS, model.rows)


def sizes_words(sizes: tuple[int, ...]) -> str:
    """Sizes in MiB in their order, equal neighbours together: "1.02, 12 x 1.13, 0.563"."""
    runs = [(text, len(list(alike))) for text, alike in groupby(mebibytes(size) for size in sizes)]
    words = [text if number == 1 else f"{number} x {text}" for text, number in runs[:MOST_SIZES]]
    left = sum(number for _, number in runs[MOST_SIZES:])
    return ", ".join([*words, *([f"{left:,} more"] if left else [])])
