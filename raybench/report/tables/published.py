"""Published figures beside measured ones, and where the write-up contradicts itself."""

from __future__ import annotations

from collections.abc import Iterable

from raybench.analysis.labels import devices_words
from raybench.analysis.published import Contradiction, Figure, Source, in_words
from raybench.analysis.published_pairs import Measured, Pair
from raybench.analysis.published_settings import Departure
from raybench.analysis.published_values import BY_STEPS, BY_STEPS_AND_RESTARTS, OF_TRAINING
from raybench.analysis.results import StudyResults
from raybench.report.tables.base import Column, Table, known, make_table
from raybench.report.wording import aligned, epochs_words, figures

MARKS = {BY_STEPS: " †", BY_STEPS_AND_RESTARTS: " §", OF_TRAINING: " ‡"}
CALCULATED = {"amdahl_speedup"}  # what a law makes of other figures: there is nothing to measure
_PAIR_COLUMNS: list[Column[Pair]] = [
    Column("quantity", lambda pair: _quantity_words(pair.figure)),
    Column("published on", lambda pair: pair.figure.hardware),
    Column("strategy", lambda pair: pair.figure.strategy or ""),
    Column("devices", lambda pair: str(pair.figure.world_size or ""), right=True),
    Column(
        "batch per device",
        lambda pair: f"{pair.figure.batch_size:,}" if pair.figure.batch_size else "",
        right=True,
    ),
    Column("published", lambda pair: _published_words(pair.figure), right=True),
    Column("which was", lambda pair: _origin_words(pair.figure)),
    Column("measured here", lambda pair: _here_words(pair), right=True),
    Column(
        "n",
        lambda pair: str(pair.measured.n) if pair.measured and pair.measured.n is not None else "",
        right=True,
    ),
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


def published_table(results: StudyResults) -> Table:
    """Each published figure once, and what was measured here of the same kind; empty without figures."""
    shown = _each_once(results.published)
    sources = results.experiment.sources if results.experiment else ()
    caption = (
        f"Published by others: {'; '.join(map(_source_words, sources))}. Their hardware is not this one, so "
        "the columns stand beside each other and nothing follows from their difference. Measured: mean with "
        "95% interval over n rounds, of trained figures over n seeds; where the devices or the batch per "
        "device are not the published ones, it says so. Undated: the write-up does not say when it was "
        "measured."
    )
    caption += _training_words(results)
    derived = {pair.measured.derived for pair in shown if pair.measured}
    caption += "".join(f"{mark} {how}." for how, mark in MARKS.items() if how in derived)
    return make_table("Published beside measured", caption, _PAIR_COLUMNS, shown)


def _each_once(pairs: Iterable[Pair]) -> list[Pair]:
    """Figures of a number of devices, without what a write-up chose or calculated."""
    shown: dict[tuple[object, ...], Pair] = {}
    for pair in pairs:
        figure = pair.figure
        shows = figure.origin != "chosen" and figure.quantity not in CALCULATED
        if figure.world_size is not None and shows:
            where = (figure.quantity, figure.of, figure.strategy, figure.world_size, figure.batch_size)
            shown.setdefault((*where, figure.epoch, figure.bound, figure.words), pair)
    return list(shown.values())


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


def _published_words(figure: Figure) -> str:
    return {"low": "from ", "high": "to "}.get(figure.bound, "") + figure.words


def _origin_words(figure: Figure) -> str:
    undated = figure.origin == "measured" and not figure.dated
    return ", ".join(filter(None, [figure.origin, "undated" if undated else "", figure.note]))


def _source_words(source: Source) -> str:
    """Its name, and when it was made: without a day nobody can say with what it was measured."""
    day = source.date or "undated"
    return f"{source.name} ({', '.join([day, *([source.remark] if source.remark else [])])})"


def _here_words(pair: Pair) -> str:
    if pair.measured is not None:
        return _measured_words(pair.measured, pair.figure)
    return f"not here: {pair.why_not}" if pair.why_not else ""


def _measured_words(measured: Measured, figure: Figure) -> str:
    mark = MARKS.get(measured.derived, "")
    if measured.world_size != figure.world_size:
        mark += f" on {devices_words(measured.world_size)}"
    if figure.batch_size is not None and measured.batch_size not in (None, figure.batch_size):
        mark += f" at batch {measured.batch_size:,}"
    if measured.low is None or measured.high is None:
        return in_words(figures(measured.value), figure.unit) + mark
    value, low, high = aligned(measured.value, measured.low, measured.high)
    return f"{in_words(value, figure.unit)} [{low}, {high}]{mark}"
