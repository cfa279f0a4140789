"""A document's sections in the order in which they are read; one without content is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raybench.report.plots.drawn import DrawnPlot
from raybench.report.tables.base import MOST_ROWS, Table, first_rows, without_constant


@dataclass(frozen=True)
class Section:
    """One heading with what stands under it; ``folded`` is for those who ask on."""

    name: str  # of its anchor
    title: str
    plots: tuple[DrawnPlot, ...] = ()
    tables: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Place:
    """What belongs into a section: plots by name, tables by title as they are made."""

    title: str
    plots: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()


def make_sections(places: Mapping[str, Place], plots: Sequence[DrawnPlot]) -> tuple[Section, ...]:
    """The sections that have something to show, every plot and table in one of them."""
    by_name = {plot.name: plot for plot in plots}
    named = {name for place in places.values() for name in place.plots}
    assert by_name.keys() <= named, f"plots without a section: {sorted(by_name.keys() - named)}"
    sections = [
        Section(
            name,
            place.title,
            tuple(by_name[each] for each in place.plots if each in by_name),
            _shown(place.tables),
            _shown(place.folded),
        )
        for name, place in places.items()
    ]
    return tuple(each for each in sections if each.plots or each.tables or each.folded)


def _shown(tables: Sequence[Table]) -> tuple[Table, ...]:
    return tuple(without_constant(first_rows(table, MOST_ROWS)) for table in tables if table.rows)
