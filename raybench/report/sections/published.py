"""Figures that others published of the study's experiment, next to what was measured here."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.published import (
    UNITS,
    Figure,
    PublishedRow,
    fact,
    in_words,
    load_figures,
    published_rows,
    sources,
)
from raybench.analysis.results import StudyResults
from raybench.analysis.summary import model_name
from raybench.report.format import aligned, count, figures
from raybench.report.table import NONE, Column, Table, empty_table, known, make_table
from raybench.spec.plural import plural

TITLE = "Published and measured"
BY_STEPS = " †"
FIRST = ("speedup", "efficiency", "throughput", "epoch_time", "total_time", "accuracy")  # readers look here


def published_table(results: StudyResults) -> Table:
    """The published figures that this study measured too; empty for a study that repeats no write-up."""
    published = load_figures(results.study.name)
    measured = [row for row in published_rows(results, published) if row.value is not None]
    if not measured:
        return empty_table(TITLE)
    measured.sort(key=lambda row: FIRST.index(row.low.quantity) if row.low.quantity in FIRST else len(FIRST))
    known_sources = sources()
    who = "; ".join(known_sources[name] for name in dict.fromkeys(each.source for each in published))
    caption = (
        f"Published: {who}. Their hardware is another. Measured: 95% interval over n rounds, or seeds."
        f"{_training_words(results, published)}"
    )
    if any(row.is_by_steps for row in measured):
        caption += f"{BY_STEPS}: from the throughput of steps, without evaluation."
    kind = "GPU" if results.complete[0].config.device == "cuda" else "CPU worker"

    def here(row: PublishedRow) -> str:
        assert row.record is not None
        config = row.record.config
        return f"{plural(config.world_size, kind)}; batch {config.batch_size:,}; {model_name(row.record)}"

    columns: list[Column[PublishedRow]] = [
        Column("quantity", _quantity_words),
        Column("published", lambda row: row.words, right=True),
        Column("measured", _measured_words),
        Column("n", lambda row: known(row.value, count) if row.has_interval else NONE, right=True),
        Column("there", lambda row: _there_words(row.low)),
        Column("here", here),
        Column("which was", lambda row: ", ".join(filter(None, [row.low.origin, row.low.note]))),
    ]
    return make_table(TITLE, caption, columns, measured)


def _training_words(results: StudyResults, published: Sequence[Figure]) -> str:
    """How long was trained here, and there: of another number of samples an epoch says little."""
    spec = results.study.training
    if spec is None or results.training is None:
        return ""
    samples = results.epoch_samples
    theirs = [(fact(published, name), name) for name in ("epochs", "samples")]
    there = " of ".join(f"{value:,.0f} {name}" for value, name in theirs if value)
    here = plural(spec.epochs, "epoch") + (f" of {samples:,.0f} samples" if samples else "")
    return f" Trained here: {here}{f'; published: {there}' if there else ''}."


def _quantity_words(row: PublishedRow) -> str:
    figure = row.low
    words = figure.quantity.replace("_", " ").replace("speedup", "speed-up")
    if figure.of:
        words += f" of {figure.of.replace('_', ' ')}"
    return words if figure.epoch is None else f"{words}, epoch {figure.epoch}"


def _measured_words(row: PublishedRow) -> str:
    """In the figure's unit; a time too small or too large for it in s."""
    assert row.value is not None
    unit = row.low.unit
    value, mark = row.value.scaled(1 / UNITS[unit]), BY_STEPS if row.is_by_steps else ""
    if unit in ("h", "min", "ms") and not 0.1 <= abs(value.value) < 1000:
        unit, value = "s", row.value
    if not row.has_interval:
        return in_words(figures(value.value), unit) + mark
    words, low, high = aligned(value.value, value.low, value.high)
    return f"{in_words(words, unit)} [{low}, {high}]{mark}"


def _there_words(figure: Figure) -> str:
    """On which devices, with which batch and model."""
    said = [
        figure.strategy or "strategy not said",
        figure.hardware or plural(figure.world_size or 1, "device"),
        f"batch {figure.batch_size:,}" if figure.batch_size else "batch not said",
        figure.model or "model not said",
    ]
    return "; ".join(said)
