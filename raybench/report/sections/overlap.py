"""What a trace shows of the communication, what other settings would change, and which buckets there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean, median

from raybench.analysis.labels import bucket_words, devices_of, knob_words
from raybench.analysis.reference import Sizes
from raybench.analysis.resolve import Facts
from raybench.analysis.results import StudyResults
from raybench.analysis.simulate.network import Note
from raybench.analysis.simulate.timeline import BucketCap
from raybench.analysis.simulate.what_if import Predicted, WhatIf, study_what_if
from raybench.records.record import TrialRecord
from raybench.records.store import TRACES
from raybench.report.format import (
    aligned,
    figures,
    mebibytes,
    milliseconds,
    percent,
    sentence,
)
from raybench.report.table import NONE, Column, Table, devices, empty_table, known, make_table
from raybench.spec.plural import plural

WHAT_IF_TITLE = "What if: predicted from one trial"
COMPRESSING = "what compressing costs is assumed (a copy each way, within 0 to 3)"
BUCKETS_TITLE = "The gradients and their buckets"
MOST_SIZES = 6  # runs of equal buckets in a cell

TRACES_TITLE = "Communication in the traces"
CAPTION = (
    "Trace: a few steps under torch.profiler, which slows them, mean over the ranks (least to most); its "
    "transfers include waiting for other ranks."
)


def _traced(name: str) -> Callable[[TrialRecord], str]:
    """A cell of one step: its mean over the ranks, least and most. One device has steps alone."""

    def cell(record: TrialRecord) -> str:
        ranks = record.steps.profile if record.steps else None
        if not ranks or (record.config.world_size == 1 and name != "steps_s"):
            return NONE
        times_ms = [1e3 * getattr(rank, name) / rank.num_steps for rank in ranks]
        mean, least, most = aligned(fmean(times_ms), min(times_ms), max(times_ms))
        return f"{mean} ({least} to {most})"

    return cell


def overlap_table(results: StudyResults) -> Table:
    """What the traces of each profiled trial show; empty where no profile was asked for."""
    columns: list[Column[TrialRecord]] = [
        Column("setting", results.label),
        Column("devices", devices, right=True),
        Column("step, ms", _traced("steps_s"), right=True),
        Column("transfers, ms", _traced("communication_s"), right=True),
        Column("hidden, ms", _traced("both_s"), right=True),
        Column("not hidden, ms", _traced("alone_s"), right=True),
        Column("trace", lambda record: f"{TRACES}/{record.trial_id}/"),
    ]
    asked = [record for record in results.records if record.steps is not None and _was_asked(record)]
    words = [
        f"{results.label(record)}: no {name.replace('_', ' ')}: {why}."
        for record in asked
        for name, why in (record.steps.missing.items() if record.steps else ())
        if name in ("profile", "memory_snapshot")
    ]
    return make_table(TRACES_TITLE, " ".join([CAPTION, *words]), columns, asked)


def _was_asked(record: TrialRecord) -> bool:
    request = record.request
    return request.kind == "steps" and (request.measure.profile or request.measure.memory_snapshot)


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
    notes = dict.fromkeys([*found.notes, *(note for each in found.points for note in each.notes)])
    beside = (
        f" Measured, not predicted from: {plural(len(errors), 'step')}, median error {median(errors):.1%}."
        if errors
        else ""
    )
    caption = (
        f"From trial {record.trial_id} ({results.label(record)}, {devices_of(record.config)}): "
        f"{milliseconds(own)} ms measured, {figures(found.simulated_s * 1e3)} ms simulated; predictions are "
        f"corrected by the difference.{beside} {sentence('; '.join(map(note_words, notes)))}."
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


def note_words(note: Note) -> str:
    """What a prediction rests on."""
    numbers = ", ".join(f"{value:,}" for value in note.values)
    value = note.values[0] if note.values else 0.0
    return {
        "wire by sweep": "latency and bandwidth from a sweep of the place and the trial's own replay",
        "wire by replays": f"latency and bandwidth from the replays of {plural(int(value), 'trial')}",
        "wire with assumed latency": "latency and bandwidth from the all-reduces that this trial timed "
        f"alone, the latency assumed ({value * 1e6:.0f} µs, within a factor of ten)",
        "other buckets": "DDP's own buckets were others than the order of the gradients says: a rough guess",
        "batch as measured": f"computing as one device measured batch {numbers}",
        "batch by line": f"computing by a line through one device's batches {numbers}",
        "batch in proportion": f"computing in proportion to the batch: only batch {numbers} was measured",
        "compression": f"{value:.0%} of the bytes; {COMPRESSING}",
        "compression as of fp32": f"{value:.0%} of the bytes, as of fp32: the record does not say in which "
        f"type gradients are; {COMPRESSING}",
        "another link": "the link at its rate less headers, its latency as measured; no other limit is known",
        "faster link": "a faster link may carry no more than was measured: that is in the interval",
    }[note.kind]


def _is_own(row: Predicted, found: WhatIf) -> bool:
    return row.setting == found.record.config.setting and row.change.link_bits_per_s is None


def _cap_words(cap: BucketCap) -> str:
    return knob_words("bucket_cap_mb", cap)


@dataclass(frozen=True)
class _Buckets:
    """What one bucket size comes to."""

    cap: BucketCap  # in MiB, or "default"
    sizes: Sizes  # in bytes, in the order in which they are sent
    is_measured: bool  # DDP itself has reported them, else its rule says so
    same_as: BucketCap | None  # the first size before it with the same buckets


_BUCKET_COLUMNS: list[Column[_Buckets]] = [
    Column("asked", lambda row: _cap_words(row.cap)),
    Column("buckets", lambda row: f"{len(row.sizes):,}", right=True),
    Column("sizes, MiB", lambda row: sizes_words(row.sizes)),
    Column("source", lambda row: "DDP" if row.is_measured else "DDP's rule"),
    Column("same as", lambda row: "" if row.same_as is None else _cap_words(row.same_as)),
]


def model_buckets_table(results: StudyResults) -> Table:
    """What each bucket size comes to, the headline's first; empty where no trial tells."""
    headline, rows = results.headline, list[_Buckets]()
    if headline is not None:
        setting, size = headline.config.setting, headline.config.world_size
        for cap in dict.fromkeys([setting.bucket_cap_mb, *results.study.knobs.values("bucket_cap_mb")]):
            asked = setting.model_copy(update={"bucket_cap_mb": cap})
            sizes = results.buckets.sizes(asked, size)
            if sizes is not None:
                first = next((row.cap for row in rows if row.sizes == sizes), None)
                rows.append(_Buckets(cap, sizes, results.buckets.is_measured(asked), first))
    if not rows:
        return empty_table(BUCKETS_TITLE)
    caption = (
        f"{mebibytes(sum(rows[0].sizes))} MiB of gradients on each rank, in the order in which they are sent."
    )
    if any(row.same_as is not None for row in rows):
        caption += " Sizes with the same buckets are one setting."
    return make_table(BUCKETS_TITLE, caption, _BUCKET_COLUMNS, rows)


def sizes_words(sizes: tuple[int, ...]) -> str:
    """Sizes in MiB in their order, equal neighbours together: "1.02, 12 x 1.13, 0.563"."""
    runs = [(text, len(list(alike))) for text, alike in groupby(mebibytes(size) for size in sizes)]
    words = [text if number == 1 else f"{number} x {text}" for text, number in runs[:MOST_SIZES]]
    left = sum(number for _, number in runs[MOST_SIZES:])
    return ", ".join([*words, *([f"{left:,} more"] if left else [])])
