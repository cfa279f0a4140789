"""What each knob changes against the default."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.attribution import Effect
from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.report.format import EXPLORATORY, count, percent, times
from raybench.report.tables.base import (
    Column,
    Table,
    empty_table,
    known,
    make_table,
)

TITLE = "What each knob changes"


@dataclass(frozen=True)
class _Row:
    """An effect, and of how many knobs it is."""

    effect: Effect
    of: str


_COLUMNS: list[Column[_Row]] = [
    Column("change", lambda row: row.effect.label),
    Column("of", lambda row: row.of),
    Column("efficiency", lambda row: percent(row.effect.efficiency), right=True),
    Column("efficiency / default's", lambda row: times(row.effect.efficiency_ratio), right=True),
    Column("samples/s / default's", lambda row: times(row.effect.throughput_ratio), right=True),
    Column("samples/s measured", lambda row: "interleaved" if row.effect.is_paired else "apart"),
    Column("interaction", lambda row: known(row.effect.interaction, times), right=True),
    Column("n", lambda row: count(row.effect.efficiency_ratio), right=True),
]


def attribution_table(results: StudyResults) -> Table:
    """What each knob changes against the default, one at a time and together."""
    attribution = results.attribution
    if attribution is None:
        return empty_table(TITLE)
    effects = [*attribution.singles, *attribution.together]
    paired = (
        "; interleaved: of samples/s in the same rounds, as the confirmation or the verification has them"
        if any(effect.is_paired for effect in effects)
        else ""
    )
    interaction = (
        " Interaction: what the knobs do together over the product of what each does alone, where each was "
        "measured alone."
        if any(effect.interaction is not None for effect in effects)
        else ""
    )
    accumulation = (
        " Accumulation alone leaves the batch of a pass as it is."
        if any("gradient_accumulation" in effect.changes for effect in effects)
        else ""
    )
    caption = (
        f"Against the default ({results.label(attribution.default)}) at "
        f"{percent(attribution.default_efficiency)} on {devices_words(attribution.world_size)}. "
        "Ratios of two trials, with 95% intervals that hold the uncertainty of both, for all rows at "
        f"once{paired}. {EXPLORATORY}{interaction}{accumulation} "
        "The workload is one within a study: how much a larger model "
        "does, the command compare tells of two results directories."
    )
    rows = [_Row(effect, "one knob") for effect in attribution.singles]
    rows += [_Row(effect, f"{len(effect.changes)} knobs together") for effect in attribution.together]
    return make_table(TITLE, caption, _COLUMNS, rows)
