"""Figures that others published of the study's experiment, next to what was measured here."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.labels import devices_of, label
from raybench.analysis.published import (
    UNITS,
    Figure,
    PublishedRow,
    fact,
    load_figures,
    published_rows,
    rows_of,
)
from raybench.analysis.results import StudyResults
from raybench.analysis.summary import model_name
from raybench.report.format import interval
from raybench.report.table import Column, Table, make_table
from raybench.spec.plural import plural

TITLE = "Published and measured"
BY_STEPS = " †"
NOT_MEASURED = "*"
ABOUT = "approximate"  # in a note
FIRST = ("speedup", "efficiency", "throughput", "epoch_time", "total_time", "accuracy")  # readers look here


def published_table(results: StudyResults) -> Table:
    """The published figures that this study measured too; empty for one that repeats no write-up.

    A smoke run has none: figures of toy sizes next to published ones would be read as a result.
    """
    published = load_figures(results.study.name)
    rows = published_rows(results, published)
    if results.study.is_smoke or not rows:
        return Table(TITLE)
    order = {quantity: place for place, quantity in enumerate(FIRST)}
    rows.sort(key=lambda row: order.get(row.figures[0].quantity, len(FIRST)))
    titles = source_words()
    write_ups = "; ".join(titles[name] for name in dict.fromkeys(each.source for each in published))
    model = model_name(results.complete[0].config.workload)
    is_strong = results.study.scaling.mode == "strong"
    said = [
        f"Published: {write_ups}, on the hardware named; here: {model}, 95% intervals.",
        _training_words(results, published),
        "Batches are per device, those of settings of all devices." if is_strong else "",
    ]
    if any(_is_not_measured(each) for row in rows for each in row.figures):
        said.append(f"{NOT_MEASURED}: expected or computed by the write-up.")
    if any(row.is_by_steps for row in rows):
        said.append(f"{BY_STEPS.strip()}: from the throughput of steps, without evaluation.")
    columns: list[Column[PublishedRow]] = [
        Column("quantity", lambda row: _quantity_words(row.figures[0])),
        Column("published", lambda row: _published_words(row.figures), right=True),
        Column("here", lambda row: _here_words(row), right=True),
        Column("setting here", lambda row: label(results.study, row.config)),
        Column("hardware", lambda row: row.figures[0].hardware or "not named"),
    ]
    return make_table(TITLE, " ".join(filter(None, said)), columns, rows)


def source_words() -> dict[str, str]:
    """Every write-up by its name, as figures have it: title, author, place, date, a remark."""
    words = {}
    for row in rows_of("sources"):
        who = f"by {row['author']}" if row["author"] else "author not named"
        said = [who, row["place"] or "place not named", row["date"] or "undated", row["remark"]]
        words[row["source"]] = f'"{row["title"]}" ({", ".join(filter(None, said))})'
    return words


def _training_words(results: StudyResults, published: Sequence[Figure]) -> str:
    """How long was trained here, and there: of another number of samples an epoch says little."""
    spec = results.study.training
    if spec is None or results.training is None:
        return ""
    samples = results.epoch_samples
    theirs = [(fact(published, name), name) for name in ("epochs", "samples")]
    there = " of ".join(f"{value:,.0f} {name}" for value, name in theirs if value)
    here = plural(spec.epochs, "epoch") + (f" of {samples:,.0f} samples" if samples else "")
    return f"Trained here: {here}{f'; published: {there}' if there else ''}."


def _quantity_words(figure: Figure) -> str:
    words = figure.quantity.replace("_", " ").replace("speedup", "speed-up")
    if figure.of:
        words += f" of {figure.of.replace('_', ' ')}"
    if figure.strategy and figure.world_size != 1:
        words += f", {figure.strategy}"
    return f"{words}, batch {figure.batch_size:,}" if figure.batch_size else words


def _published_words(prints: Sequence[Figure]) -> str:
    """As printed, of a range both ends, each once: "~4.5 min or 273 s", "120 to 150 ms*"."""
    words = []
    for each in prints:
        if each.bound == "high":
            continue
        ends = [
            one for one in prints if each.bound == "low" and one.bound == "high" and one.table == each.table
        ]
        printed = f"{each.printed} to {_printed(ends[0])}" if ends else _printed(each)
        about, mark = "~" if each.note == ABOUT else "", NOT_MEASURED if _is_not_measured(each) else ""
        words.append(f"{about}{printed}{mark}")
    return " or ".join(dict.fromkeys(words))


def _is_not_measured(figure: Figure) -> bool:
    return figure.origin != "measured" or figure.note not in ("", ABOUT)


def _printed(figure: Figure) -> str:
    whole, point, decimals = figure.printed.partition(".")
    number = f"{int(whole):,}{point}{decimals}" if whole.isdigit() else figure.printed
    return number + _suffix(figure.unit)


def _suffix(unit: str) -> str:
    return unit if unit in ("x", "%", "") else f" {unit}"


def _here_words(row: PublishedRow) -> str:
    """In the figure's unit, a time too small or too large for it in s; and where it is of something else."""
    figure, config, value = row.figures[0], row.config, row.value
    unit, scaled = figure.unit, value.scaled(1 / UNITS[figure.unit])
    if unit in ("min", "ms") and not 0.1 <= abs(scaled.value) < 1000:
        unit, scaled = "s", value
    words = interval(scaled, _suffix(unit))
    others = [devices_of(config)] if config.world_size != figure.world_size else []
    if figure.batch_size not in (None, config.batch_size):
        others.append(f"batch {config.batch_size:,}")
    words += BY_STEPS if row.is_by_steps else ""
    return f"{words} ({', '.join(others)})" if others else words
