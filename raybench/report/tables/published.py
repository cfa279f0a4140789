"""Published figures beside measured ones, and where the write-up contradicts itself."""

from __future__ import annotations

from raybench.analysis.labels import devices_words
from raybench.analysis.published import Figure, in_words
from raybench.analysis.published_pairs import Measured, Pair
from raybench.analysis.results import StudyResults
from raybench.report.tables.tables import Column, Table
from raybench.report.wording import aligned, figures

MARK = " †"
ARITHMETIC = {  # what a write-up chose or calculated: the rules need it, there is nothing to measure
    "amdahl_speedup",
    "learning_rate",
    "linear_learning_rate",
    "runs",
    "samples_per_rank",
}


def published_table(results: StudyResults) -> Table:
    """Each published figure once, and what was measured here of the same kind; empty without figures."""
    shown: dict[tuple[object, ...], Pair] = {}
    for pair in results.published:
        figure = pair.figure
        if figure.world_size is not None and figure.quantity not in ARITHMETIC:
            where = (figure.quantity, figure.of, figure.strategy, figure.world_size, figure.batch_size)
            shown.setdefault((*where, figure.epoch, figure.bound, figure.words), pair)
    rows = tuple(_cells(pair) for pair in shown.values())
    columns = (
        Column("quantity"),
        Column("published on"),
        Column("strategy"),
        Column("devices", True),
        Column("batch per device", True),
        Column("published", True),
        Column("which was"),
        Column("measured here", True),
        Column("n", True),
    )
    sources = ", ".join(dict.fromkeys(pair.figure.source for pair in results.published))
    caption = (
        f"Published by others: {sources}. Their hardware is not this one, so the columns stand beside each "
        "other and nothing follows from their difference. Measured: mean with 95% interval over n rounds; "
        "where the devices or the batch per device are not the published ones, it says so."
    )
    caption += _training_words(results)
    if any(pair.measured and pair.measured.derived for pair in shown.values()):
        caption += f"{MARK} From the throughput of steps, without evaluation."
    return Table("Published beside measured", caption, columns, rows)


def _training_words(results: StudyResults) -> str:
    """How long was trained here, and there: of another number of samples an epoch says little."""
    spec, experiment = results.study.training, results.experiment
    if spec is None or results.training is None or experiment is None:
        return ""
    samples, theirs = results.epoch_samples, (experiment.epochs, experiment.samples)
    known = [
        f"{value:,.0f} {name}" for value, name in zip(theirs, ("epochs", "samples"), strict=True) if value
    ]
    here = f"{spec.epochs} epoch{'s' if spec.epochs > 1 else ''}"
    here += f" of {samples:,.0f} samples" if samples else ""
    return f" Trained here: {here}" + (f"; published: {' of '.join(known)}." if known else ".")


def contradictions_table(results: StudyResults) -> Table:
    """Where the write-up's figures do not agree with each other, found by arithmetic."""
    contradictions = results.experiment.contradictions if results.experiment else ()
    rows = tuple((found.rule, found.evidence) for found in contradictions)
    caption = (
        "Found by arithmetic over the published figures. Each figure counts as all that is printed "
        "so: what rounding explains is not here. A time in total may hold more than its epochs."
    )
    columns = (Column("rule"), Column("what the write-up says"))
    return Table("Where the published figures contradict themselves", caption, columns, rows)


def _cells(pair: Pair) -> tuple[str, ...]:
    figure, measured = pair.figure, pair.measured
    quantity = figure.quantity.replace("_", " ").replace("speedup", "speed-up")
    if figure.of:
        quantity += f" of {figure.of.replace('_', ' ')}"
    if figure.epoch is not None:
        quantity += f", epoch {figure.epoch}"
    bound = {"low": "from ", "high": "to "}.get(figure.bound, "")
    return (
        quantity,
        figure.hardware,
        figure.strategy or "",
        str(figure.world_size or ""),
        f"{figure.batch_size:,}" if figure.batch_size else "",
        bound + figure.words,
        ", ".join(["projected" if figure.projected else "measured", *([figure.note] if figure.note else [])]),
        _measured_words(measured, figure) if measured else "",
        str(measured.n) if measured and measured.n is not None else "",
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
