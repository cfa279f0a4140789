"""Which published figures make a row: a range is one with two ends, each figure is there once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from raybench.analysis.published import Figure
from raybench.analysis.published_pairs import Pair

CALCULATED = {"amdahl_speedup"}  # what a law makes of other figures: there is nothing to measure
# What one looks for first, in this order; the rest is folded.
FIRST = ("speedup", "efficiency", "throughput", "epoch_time", "total_time", "accuracy")


@dataclass(frozen=True)
class PublishedRow:
    """A published figure, a range with both ends, and what was measured of it."""

    low: Figure  # the only one, where there is no range
    high: Figure
    pair: Pair


def first_and_further(pairs: Iterable[Pair]) -> tuple[list[PublishedRow], list[PublishedRow]]:
    """Of each quantity that is looked for first the first row at a setting that was measured; the others."""
    rows = _rows(pairs)
    places: dict[tuple[object, ...], int] = {}
    for place, row in enumerate(rows):
        figure = row.low
        where = (figure.quantity, figure.strategy, figure.world_size, figure.batch_size)
        if figure.quantity in FIRST and figure.epoch is None and row.pair.measured is not None:
            places.setdefault(where, place)
    unmeasured = {place for place, row in enumerate(rows) if row.low.quantity in FIRST[:2]}
    chosen = set(places.values()) or unmeasured or set(range(len(rows)))
    first = [row for place, row in enumerate(rows) if place in chosen]
    order = {name: place for place, name in enumerate(FIRST)}
    first.sort(key=lambda row: order.get(row.low.quantity, len(FIRST)))
    return first, [row for place, row in enumerate(rows) if place not in chosen]


def published_words(row: PublishedRow) -> str:
    """The figure as printed, of a range both ends: "120 to 150 ms"."""
    if row.low is row.high:
        return {"low": "at least ", "high": "at most "}.get(row.low.bound, "") + row.low.words
    return f"{row.low.printed} to {row.high.words}"


def _rows(pairs: Iterable[Pair]) -> list[PublishedRow]:
    """Figures of a number of devices, each once, a range as one, without what was chosen or calculated."""
    ranges: dict[tuple[object, ...], PublishedRow] = {}
    for place, pair in enumerate(pairs):
        figure = pair.figure
        if figure.world_size is None or figure.origin == "chosen" or figure.quantity in CALCULATED:
            continue
        if not figure.bound:
            ranges[(place,)] = PublishedRow(figure, figure, pair)
            continue
        end_of = (*_where(figure), figure.source, figure.table, figure.hardware)
        if figure.bound == "high" and end_of in ranges:
            ranges[end_of] = replace(ranges[end_of], high=figure)
        else:
            ranges[end_of] = PublishedRow(figure, figure, pair)
    once: dict[tuple[object, ...], PublishedRow] = {}
    for row in ranges.values():
        once.setdefault((*_where(row.low), published_words(row)), row)
    return list(once.values())


def _where(figure: Figure) -> tuple[object, ...]:
    """What a figure is of."""
    return (
        figure.quantity, figure.of, figure.strategy, figure.world_size, figure.batch_size, figure.epoch
    )  # fmt: skip
