"""Published figures beside measured ones, and where the write-up contradicts itself."""

from __future__ import annotations

from collections.abc import Iterable

from raybench.analysis.labels import devices_words
from raybench.analysis.published import Contradiction, Figure, in_words
from raybench.analysis.published_pairs import Measured, Pair
from raybench.analysis.results import StudyResults
from raybench.report.tables.base import Column, Table, make_table
from raybench.report.wording import aligned, epochs_words, figures

MARK = " †"
ARITHMETIC = {  # what a write-up chose or calculated: the rules need it, there is nothing to measure
    "amdahl_speedup",
    "learning_rate",
    "linear_learning_rate",
    "runs",
    "samples_per_rank",
}
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
    Column(
        "measured here",
        lambda pair: _measured_words(pair.measured, pair.figure) if pair.measured else "",
        right=True,
    ),
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


def published_table(results: StudyResults) -> Table:
    """Each published figure once, and what was measured here of the same kind; empty without figures."""
    shown = _each_once(results.published)
    sources = ", ".join(dict.fromkeys(pair.figure.source for pair in results.published))
    caption = (
        f"Published by others: {sources}. Their hardware is not this one, so the columns stand beside each "
        "other and nothing follows from their difference. Measured: mean with 95% interval over n rounds; "
        "where the devices or the batch per device are not the published ones, it says so."
    )
    caption += _training_words(results)
    if any(pair.measured and pair.measured.derived for pair in shown):
        caption += f"{MARK} From the throughput of steps, without evaluation."
    return make_table("Published beside measured", caption, _PAIR_COLUMNS, shown)


def _each_once(pairs: Iterable[Pair]) -> list[Pair]:
    """Figures of a number of devices, without what a write-up chose or calculated."""
    shown: dict[tuple[object, ...], Pair] = {}
    for pair in pairs:
        figure = pair.figure
        if figure.world_size is not None and figure.quantity not in ARITHMETIC:
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
    return ", ".join(
        ["projected" if figure.projected else "measured", *([figure.note] if figure.note else [])]
    )


def _measured_words(measured: Measured, figure: Figure) -> str:
    mark = MARK if measured.derived else ""
    if measured.world_size != figure.world_size:
        mark += f" on {devices_words(measured.world_size)}"
    if figure.batch_size is not None and measured.batch_size not in (None, figure.batch_size):
        mark += f" at batch {measured.batch_size:,}"
    if measured.low is None or measured.high is None:
        return in_words(figures(measured.value), figure.unit) + mark
    value, low, high = aligned(measured.value, measured.low, measured.high)
    return f"{in_words(value, figure.unit)} [{low}, {high}]{mark}"
