"""What other settings would change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from raybench.analysis.labels import bucket_words, devices_of, knob_words
from raybench.analysis.resolve import Facts
from raybench.analysis.results import StudyResults
from raybench.analysis.simulate.timeline import BucketCap
from raybench.analysis.simulate.what_if import Predicted, WhatIf, study_what_if
from raybench.report.format import (
    figures,
    milliseconds,
    percent,
    sentence,
)
from raybench.report.table import NONE, Column, Table, empty_table, known, make_table
from raybench.spec.plural import plural

WHAT_IF_TITLE = "What if: predicted from one trial"
RESTS_ON = (
    "Intervals hold what was not measured: the latency where one replay alone shows it, computing at other "
    "batches, the copies of compression, other limits of a faster link."
)

_WHAT_IF_COLUMNS: list[Column[Predicted]] = [
    Column("what if", lambda row: row.words),
    Column("buckets", lambda row: str(row.num_buckets), right=True),
    Column("predicted step, ms", lambda row: milliseconds(row.step_time_s), right=True, stays=True),
    Column("communication not hidden, ms", lambda row: figures(row.exposed_s * 1e3), right=True),
    Column("samples/s", lambda row: f"{row.throughput_samples_per_s.value:,.0f}", right=True),
    Column("faster by", lambda row: percent(row.gain), right=True, stays=True),
    Column("measured step, ms", lambda row: known(row.measured_s, milliseconds), right=True),
    Column("error", lambda row: f"{row.error:+.1%}" if row.error else NONE, right=True),
]


def buckets_table(results: StudyResults) -> Table:
    """What the default's trial alone says of other buckets; empty where it says nothing for certain."""
    chosen = study_what_if(results)
    if chosen is None:
        return empty_table(WHAT_IF_TITLE)
    listed = chosen.listed.point.setting if chosen.listed and chosen.listed.is_proposed else None
    decided = [each for each in chosen.points if _decides(each) or each.setting == listed]
    if not decided:
        return empty_table(WHAT_IF_TITLE)
    own = [each for each in chosen.points if _is_own(each, chosen)]
    return what_if_table(results, replace(chosen, points=(*own, *decided)))


def _decides(row: Predicted) -> bool:
    """Whether it is faster or slower with its whole interval."""
    return row.gain.low > 0 or row.gain.high < 0


def buckets_words(results: StudyResults) -> str:
    """What bucket the study would choose, and which ones the prediction cannot judge; empty without one."""
    chosen = study_what_if(results)
    if chosen is None or not any(each.gain.low or each.gain.high for each in chosen.points):
        return ""  # or all of them are the same buckets
    return f"{sentence(choice_words(chosen))}{list_words(chosen)}"


def what_if_table(results: Facts, found: WhatIf) -> Table:
    """A row for each change, the measured step beside the predicted one where there is one."""
    record = found.record
    errors = [abs(each.error) for each in found.points if each.error is not None and not _is_own(each, found)]
    own = found.step_time_s
    beside = (
        f" Measured, not predicted from: {plural(len(errors), 'step')}, median error {median(errors):.1%}."
        if errors
        else ""
    )
    caption = (
        f"From trial {record.trial_id} ({results.label(record)}, {devices_of(record.config)}): "
        f"{milliseconds(own)} ms measured, {figures(found.simulated_s * 1e3)} ms simulated; predictions are "
        f"corrected by the difference.{beside} {RESTS_ON}"
    )
    return make_table(WHAT_IF_TITLE, caption, _WHAT_IF_COLUMNS, found.points)


def choice_words(chosen: WhatIf) -> str:
    """What bucket the study would choose, which are slower, and of which that is not known."""
    best, own = chosen.best, chosen.record.config.setting
    # the default's buckets under another size gain exactly nothing
    others = [each for each in chosen.points if each.setting != own and each.gain.low < each.gain.high]
    slower = [each for each in others if each.gain.high < 0]
    unknown = [each for each in others if not _decides(each)]
    found = [] if others else ["no buckets but the default's are asked for"]
    if best.setting != own:
        found.append(f"{best.words} would be {percent(best.gain)} faster than the default")
    if slower:
        found.append(f"{_caps_words(slower)} would be slower than the default")
    if unknown:
        found.append(f"for {_caps_words(unknown)} the prediction cannot tell")
    head = f"what if, on {devices_of(chosen.record.config)}"
    return f"{head}: {'. '.join([found[0], *map(sentence, found[1:])])}."


def _caps_words(points: Sequence[Predicted]) -> str:
    """5, 25 and 100 MiB."""
    *first, last = (bucket_words(each.setting.bucket_cap_mb) for each in points)
    return f"{', '.join(first)} and {last} MiB" if first else f"{last} MiB"


def list_words(chosen: WhatIf) -> str:
    """Whether a list of bucket sizes would bring anything: a sentence; empty where none was looked for."""
    listed = chosen.listed
    if listed is None:
        return ""
    if not listed.is_proposed:
        return " No list of bucket sizes is predicted to be certainly faster than the best single size."
    return (
        f" The list (DDP's bucket_cap_mb_list) is predicted to be {percent(listed.gain)} faster than the "
        f"best single size, {_cap_words(listed.single)}."
    )


def point_words(row: Predicted) -> str:
    """A prediction in a line."""
    measured = "" if row.measured_s is None else f", measured {milliseconds(row.measured_s)} ms"
    return f"{row.words}: {milliseconds(row.step_time_s)} ms{measured}"


def _is_own(row: Predicted, found: WhatIf) -> bool:
    return row.setting == found.record.config.setting and row.change.link_bits_per_s is None


def _cap_words(cap: BucketCap) -> str:
    return knob_words("bucket_cap_mb", cap)
