"""What other settings would change."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from raybench.analysis.labels import devices_of, knob_words
from raybench.analysis.resolve import Facts
from raybench.analysis.results import StudyResults
from raybench.analysis.simulate.what_if import Predicted, WhatIf, study_what_if
from raybench.report.format import figures, milliseconds, percent
from raybench.report.table import Column, Table, empty_table, make_table, numbers
from raybench.spec.plural import plural

WHAT_IF_TITLE = "What if: predicted from one trial"
RESTS_ON = (
    "Intervals hold what was not measured: the latency where one replay alone shows it, computing at other "
    "batches, the copies of compression, other limits of a faster link."
)

_WHAT_IF_COLUMNS: list[Column[Predicted]] = [
    Column("what if", lambda row: row.words),
    numbers("buckets", lambda row: row.num_buckets),
    numbers("predicted step, ms", lambda row: row.step_time_s, milliseconds, stays=True),
    numbers("communication not hidden, ms", lambda row: row.exposed_s * 1e3, figures),
    numbers("samples/s", lambda row: row.throughput_samples_per_s.value, "{:,.0f}".format),
    numbers("faster by", lambda row: row.gain, percent, stays=True),
    numbers("measured step, ms", lambda row: row.measured_s, milliseconds),
    numbers("error", lambda row: row.error or None, "{:+.1%}".format),
]


def buckets_table(results: StudyResults) -> Table:
    """What the default's trial alone says of other buckets; empty where it says nothing for certain."""
    chosen = study_what_if(results)
    decided = _decided(chosen) if chosen else []
    if chosen is None or not decided:
        return empty_table(WHAT_IF_TITLE)
    own = [each for each in chosen.points if _is_own(each, chosen)]
    return what_if_table(results, replace(chosen, points=(*own, *decided)))


def _decided(chosen: WhatIf) -> list[Predicted]:
    """What is faster or slower with its whole interval, and a list of bucket sizes that is proposed."""
    listed = chosen.listed.point.setting if chosen.listed and chosen.listed.is_proposed else None
    return [each for each in chosen.points if each.gain.excludes(0) or each.setting == listed]


def buckets_words(results: StudyResults) -> str:
    """Whether a prediction decides anything, and a list of bucket sizes would; empty without one."""
    chosen = study_what_if(results)
    if chosen is None or not any(each.gain.low or each.gain.high for each in chosen.points):
        return ""  # or all of them are the same buckets
    words = [] if _decided(chosen) else ["The prediction cannot tell other bucket sizes from the default's."]
    listed = chosen.listed
    if listed is not None and not listed.is_proposed:
        words.append("No list of bucket sizes is predicted to be certainly faster than the best single size.")
    elif listed is not None:
        words.append(
            f"The list (DDP's bucket_cap_mb_list) is predicted to be {percent(listed.gain)} faster than the "
            f"best single size, {knob_words('bucket_cap_mb', listed.single)}."
        )
    return " ".join(words)


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


def point_words(row: Predicted) -> str:
    """A prediction in a line."""
    measured = "" if row.measured_s is None else f", measured {milliseconds(row.measured_s)} ms"
    return f"{row.words}: {milliseconds(row.step_time_s)} ms{measured}"


def _is_own(row: Predicted, found: WhatIf) -> bool:
    return row.setting == found.record.config.setting and row.change.link_bits_per_s is None
