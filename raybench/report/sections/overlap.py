"""What of the communication is hidden, what would hide more, and which buckets there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from raybench.analysis.labels import devices_words, knob_words
from raybench.analysis.overlap import (
    HIDDEN,
    BatchOverlap,
    Buckets,
    Measure,
    OverlapPoint,
    OverRanks,
    Profiled,
)
from raybench.analysis.resolve import Facts
from raybench.analysis.results import StudyResults
from raybench.analysis.simulate.network import Note
from raybench.analysis.simulate.timeline import BucketCap
from raybench.analysis.simulate.what_if import Predicted, WhatIf
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.waterfall import Waterfall
from raybench.records.store import TRACES
from raybench.report.format import (
    aligned,
    count,
    duration_words,
    figures,
    mebibytes,
    milliseconds,
    percent,
    plain_percent,
    sentence,
    share_of_step,
)
from raybench.report.table import NONE, Column, Table, devices, empty_table, known, make_table
from raybench.spec.plural import plural

HIDING_TITLE = "How much compute hides communication"
WHAT_IF_TITLE = "What if: predicted from one trial"
COMPRESSING = "what compressing costs is assumed (a copy each way, within 0 to 3)"
BUCKETS_TITLE = "The gradients and their buckets"
MOST_SIZES = 6  # runs of equal buckets in a cell

TRACES_TITLE = "Communication in the traces"
LINE_WORDS = {
    "step": "step",
    "communication": "transfers",
    "hidden": "transfers that are hidden",
    "exposed": "communication (not hidden)",
}
CAPTION = (
    "Trace: a few steps under torch.profiler, which slows them; mean over the ranks, least and most. Its "
    "transfers hold waiting for other ranks. Stopwatch: transfers are the all-reduces alone, hidden is what "
    "of them the step does not show."
)


@dataclass(frozen=True)
class _Line:
    """One quantity of one trial."""

    trial: Profiled
    name: str
    traced: OverRanks | None
    timed: Estimate | None


_COLUMNS: list[Column[_Line]] = [
    Column("setting", lambda line: line.trial.label),
    Column("devices", lambda line: devices(line.trial.record), right=True),
    Column("of a step", lambda line: LINE_WORDS[line.name]),
    Column("trace, ms", lambda line: known(line.traced, _milliseconds), right=True),
    Column("steps x ranks", lambda line: _traced_count(line.trial), right=True),
    Column("stopwatch, ms", lambda line: known(line.timed, milliseconds), right=True),
    Column("n", lambda line: known(line.timed, count), right=True),
]


def overlap_table(results: StudyResults) -> Table:
    """A line for each quantity of each profiled trial; empty where no profile was asked for."""
    if not results.profiled:
        return empty_table(TRACES_TITLE)
    words = [
        CAPTION,
        *(
            f"Open {TRACES}/{each.record.trial_id}/ ({each.label})."
            for each in results.profiled
            if each.overlap
        ),
        *(f"{each.label}: {reason}." for each in results.profiled for reason in each.missing),
    ]
    return make_table(
        TRACES_TITLE, " ".join(words), _COLUMNS, [line for each in results.profiled for line in _lines(each)]
    )


def _lines(trial: Profiled) -> Iterator[_Line]:
    traced, timed = trial.overlap, trial.waterfall
    alone = trial.record.config.world_size == 1
    for name in ("step",) if alone else ("step", "communication", "hidden", "exposed"):
        yield _Line(
            trial,
            name,
            getattr(traced, name) if traced else None,
            _timed(timed)[name] if timed else None,
        )


def _timed(waterfall: Waterfall) -> dict[str, Estimate | None]:
    return {
        "step": waterfall.step_time_s,
        "communication": waterfall.replay_s,
        "hidden": waterfall.hidden_communication_s,
        "exposed": waterfall.parts.exposed_communication,
    }


def _traced_count(trial: Profiled) -> str:
    return f"{trial.overlap.num_steps} x {trial.overlap.num_ranks}" if trial.overlap else NONE


def _milliseconds(traced: OverRanks) -> str:
    mean, least, most = aligned(*(1e3 * each for each in (traced.mean_s, traced.least_s, traced.most_s)))
    return f"{mean} ({least} to {most})"


@dataclass(frozen=True)
class _Row:
    """One batch of a setting."""

    setting: BatchOverlap
    point: OverlapPoint


_OF: dict[Measure, str] = {
    "communication": "transfers that no compute hides",
    "T_comm": "all that more devices add, T(n) - T(1)",
}

_HIDING_COLUMNS: list[Column[_Row]] = [
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
        return empty_table(HIDING_TITLE)
    words = " ".join(sentence(hiding_words(setting)) for setting in settings)
    caption = (
        "Compute is the step of one device alone, T(n) the step on "
        f"{devices_words(settings[0].world_size)}. Hidden: at most {HIDDEN:.0%} of T(n). {words}"
    )
    if num_others:
        caption += (
            f" Not shown: {plural(num_others, 'setting')} more that "
            f"{'was' if num_others == 1 else 'were'} measured at several batches."
        )
    rows = [_Row(setting, point) for setting in settings for point in setting.points]
    return make_table(HIDING_TITLE, caption, _HIDING_COLUMNS, rows)


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


_WHAT_IF_COLUMNS: list[Column[Predicted]] = [
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
        return empty_table(WHAT_IF_TITLE)
    table = what_if_table(results, chosen)
    return Table(table.title, f"{sentence(choice_words(chosen))} {table.caption}", table.columns, table.rows)


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
        f"From trial {record.trial_id} ({results.label(record)}, {devices_words(record.config.world_size)}): "
        f"{milliseconds(own)} ms measured, {figures(found.simulated_s * 1e3)} ms simulated before the "
        f"difference is carried along.{beside} {sentence('; '.join(map(note_words, notes)))}."
    )
    return make_table(WHAT_IF_TITLE, caption, _WHAT_IF_COLUMNS, found.points)


def choice_words(chosen: WhatIf) -> str:
    """What bucket the study would choose: a sentence."""
    first, best, own = chosen.first, chosen.best, chosen.record.config.setting
    head = f"what if, on {devices_words(chosen.record.config.world_size)}"
    if best.setting != own:
        return f"{head}: {best.words} would be {percent(best.gain)} faster than the default."
    asked = [each.setting.bucket_cap_mb for each in chosen.points if each.setting != own]
    if not asked:
        return f"{head}: no buckets but the default's are asked for."
    caps = ", ".join("default" if isinstance(cap, str) else f"{cap:g}" for cap in asked)
    none = f"none of {caps} MiB is" if len(asked) > 1 else f"{caps} MiB is not"
    if first.setting != own:  # a further trial may have them the other way round
        nearest = f"{first.words}: {percent(first.gain, sign=True)}"
        return f"{head}: {none} predicted to be certainly faster than the default ({nearest})."
    return f"{head}: {none} predicted to be faster than the default."


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


_BUCKET_COLUMNS: list[Column[Buckets]] = [
    Column("asked", lambda row: _cap_words(row.cap)),
    Column("buckets", lambda row: f"{len(row.sizes):,}", right=True),
    Column("sizes, MiB", lambda row: sizes_words(row.sizes)),
    Column("known from", lambda row: "DDP" if row.is_measured else "DDP's rule"),
    Column("the same as", lambda row: "" if row.same_as is None else _cap_words(row.same_as)),
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
