"""Published figures beside measured ones, and where the write-up contradicts itself."""

from __future__ import annotations

from collections.abc import Iterable

from raybench.analysis.labels import devices_words
from raybench.analysis.published import Contradiction, Figure, Source, in_words
from raybench.analysis.published_pairs import Measured, Pair
from raybench.analysis.published_settings import Departure
from raybench.analysis.published_values import BY_STEPS, BY_STEPS_AND_RESTARTS, OF_TRAINING
from raybench.analysis.results import StudyResults
from raybench.analysis.summary import model_name
from raybench.report.format import HOUR_S, MINUTE_S, aligned, duration_unit, epochs_words, figures, time_unit
from raybench.report.tables.base import NONE, Column, Table, known, make_table
from raybench.report.tables.published_rows import PublishedRow, first_and_further, published_words
from raybench.spec.counted import counted
from raybench.spec.workloads import MLPSpec, TextSpec

MARKS = {BY_STEPS: " †", BY_STEPS_AND_RESTARTS: " §", OF_TRAINING: " ‡"}
UNKNOWN = "not said"
SINGLE = "one value"  # it has no interval
TIMES_S = {"h": HOUR_S, "min": MINUTE_S, "s": 1.0, "ms": 1e-3, "µs": 1e-6}
READABLE = (0.1, 1000.0)  # of a time in the unit that was published; else another is taken


def published_table(results: StudyResults) -> Table:
    """What one looks for first of the published figures, and what was measured here of the same kind.

    Empty without figures.
    """
    first, _ = first_and_further(results.published)
    sources = results.experiment.sources if results.experiment else ()
    caption = (
        f"Published by others: {'; '.join(map(_source_words, sources))}. Their hardware is not this one, so "
        "the columns stand beside each other and nothing follows from their difference. Measured: mean with "
        "95% interval over n rounds, of trained figures over n seeds. Undated: the write-up does not say "
        "when it was measured."
    )
    caption += _training_words(results) + _marks_words(first)
    return make_table("Published beside measured", caption, _columns(results), first)


def further_published_table(results: StudyResults) -> Table:
    """The other published figures, with what was measured here of the same kind."""
    _, further = first_and_further(results.published)
    caption = "As above: published by others on their hardware, measured on this one."
    return make_table(
        "Further published figures", caption + _marks_words(further), _columns(results), further
    )


def _marks_words(rows: Iterable[PublishedRow]) -> str:
    derived = {row.pair.measured.derived for row in rows if row.pair.measured}
    return "".join(f"{mark} {how}." for how, mark in MARKS.items() if how in derived)


def _columns(results: StudyResults) -> list[Column[PublishedRow]]:
    """Each of the two with what it was measured on: devices, batch, model."""
    model = _model_here(results)
    return [
        Column("quantity", lambda row: _quantity_words(row.low)),
        Column("published", published_words, right=True),
        Column("measured here", lambda row: _here_words(row.pair)),
        Column("n", lambda row: _count_words(row.pair), right=True),
        Column("there", lambda row: _there_words(row.low), stays=True),
        Column("here", lambda row: _on_what_words(results, row.pair, model), stays=True),
        Column("which was", lambda row: _origin_words(row.low)),
    ]


_CONTRADICTION_COLUMNS: list[Column[Contradiction]] = [
    Column("rule", lambda each: each.rule),
    Column("what the write-up says", lambda each: each.evidence),
]

_DEPARTURE_COLUMNS: list[Column[Departure]] = [
    Column("field", lambda each: each.field),
    Column("here", lambda each: each.here),
    Column("the write-up", lambda each: known(each.published, str, "does not say")),
]


def _training_words(results: StudyResults) -> str:
    """How long was trained here, and there: of another number of samples an epoch says little."""
    spec, experiment = results.study.training, results.experiment
    if spec is None or results.training is None or experiment is None:
        return ""
    samples, theirs = results.epoch_samples, (experiment.epochs, experiment.samples)
    published = [
        f"{value:,.0f} {name}" for value, name in zip(theirs, ("epochs", "samples"), strict=True) if value
    ]
    here = epochs_words(spec.epochs) + (f" of {samples:,.0f} samples" if samples else "")
    return f" Trained here: {here}" + (f"; published: {' of '.join(published)}." if published else ".")


def departures_table(results: StudyResults) -> Table:
    """In what the study, as it was run, is not the write-up's; empty for a study that repeats none."""
    caption = (
        "Fields of this study as it was run (smoke sizes and options included) that are not those of the "
        "write-up, or that it does not give, so that the study had to choose."
    )
    return make_table(
        "Where this study is not the write-up's", caption, _DEPARTURE_COLUMNS, results.departures
    )


def contradictions_table(results: StudyResults) -> Table:
    """Where the write-up's figures do not agree with each other, found by arithmetic."""
    caption = (
        "Found by arithmetic over the published figures. Each figure counts as all that is printed "
        "so: what rounding explains is not here. A time in total may hold more than its epochs."
    )
    contradictions = results.experiment.contradictions if results.experiment else ()
    return make_table(
        "Where the published figures contradict themselves", caption, _CONTRADICTION_COLUMNS, contradictions
    )


def _quantity_words(figure: Figure) -> str:
    words = figure.quantity.replace("_", " ").replace("speedup", "speed-up")
    if figure.of:
        words += f" of {figure.of.replace('_', ' ')}"
    if figure.epoch is not None:
        words += f", epoch {figure.epoch}"
    return words


def _origin_words(figure: Figure) -> str:
    undated = figure.origin == "measured" and not figure.dated
    return ", ".join(filter(None, [figure.origin, "undated" if undated else "", figure.note]))


def _source_words(source: Source) -> str:
    """Its title, who wrote it and where, and when: without a day nobody can say with what it was measured."""
    who = f"by {source.author}" if source.author else "author not named"
    told = [who, source.place or "place not named", source.date or "undated", source.remark]
    return f'"{source.title}" ({", ".join(filter(None, told))})'


def _here_words(pair: Pair) -> str:
    """What was measured, or why nothing was."""
    if pair.measured is not None:
        return _measured_words(pair.measured, pair.figure)
    return f"not here: {pair.why_not or 'it does not follow from what was measured'}"


def _count_words(pair: Pair) -> str:
    if pair.measured is None:
        return NONE
    return known(pair.measured.n, str, SINGLE)


def _there_words(figure: Figure) -> str:
    """On which devices, with which batch and model."""
    batch = f"batch {figure.batch_size:,} per device" if figure.batch_size else f"batch {UNKNOWN}"
    devices = figure.hardware or f"{devices_words(figure.world_size or 1)} of which kind is {UNKNOWN}"
    strategy = figure.strategy or f"strategy {UNKNOWN}"
    return f"{strategy} on {devices}; {batch}; {figure.model or f'model {UNKNOWN}'}"


def _on_what_words(results: StudyResults, pair: Pair, model: str) -> str:
    """The same of what was measured; where that is of no one trial the batch is the figure's."""
    measured = pair.measured
    if measured is None:
        return NONE
    kind = "GPU" if results.complete[0].config.device == "cuda" else "CPU worker"
    batch = measured.batch_size or pair.figure.batch_size
    at = f"batch {batch:,} per device" if batch else "several batches"
    return f"{counted(measured.world_size, kind)}; {at}; {model}"


def _model_here(results: StudyResults) -> str:
    """Its name and what makes it as large as it is."""
    workload = results.study.workload
    name = model_name(results.complete[0]) if results.complete else NONE
    if isinstance(workload, MLPSpec):
        sizes = f"{workload.input_dim}-{workload.hidden_dim}-{workload.output_dim}"
        return f"MLP {sizes}, {workload.num_layers} layers"
    if isinstance(workload, TextSpec):
        return f"{name}, d_model {workload.sizes.hidden_dim}, {workload.sizes.num_layers} layers"
    return name


def _measured_words(measured: Measured, figure: Figure) -> str:
    """In the figure's unit, a time that is too small or too large for it in another."""
    mark = MARKS.get(measured.derived, "")
    unit, factor = _readable_unit(measured.value, figure.unit)
    value = measured.value * factor
    if measured.low is None or measured.high is None:
        return in_words(figures(value), unit) + mark
    words, low, high = aligned(value, measured.low * factor, measured.high * factor)
    return f"{in_words(words, unit)} [{low}, {high}]{mark}"


def _readable_unit(value: float, unit: str) -> tuple[str, float]:
    """The unit in which to say a value that is known in another, and by what to multiply it."""
    device, _, time = unit.rpartition("-")
    low, high = READABLE
    if time not in TIMES_S or low <= abs(value) < high or value == 0:
        return unit, 1.0
    seconds = abs(value) * TIMES_S[time]
    better = duration_unit(seconds) if seconds >= 1 else time_unit(seconds)
    name = better[0]
    return f"{device}-{name}" if device else name, TIMES_S[time] / TIMES_S[name]
