"""A search as it went: the first objective of each suggestion, and the best so far."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis import choice
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.objectives import MAXIMIZED, UNITS
from raybench.spec.study import Objective


@dataclass(frozen=True)
class HistoryPoint:
    """One suggestion; None where its trial has no value."""

    suggestion: int
    value: float | None
    best: float | None  # of this and those before


@dataclass(frozen=True)
class SearchHistory:
    """The suggestions in their order, by the objective in its unit."""

    objective: Objective
    unit: str
    points: tuple[HistoryPoint, ...]


def search_history(results: MeasuredStudy) -> SearchHistory | None:
    """The history of a search of at least two suggestions; None without one."""
    study = results.study
    tried = choice.suggestions(study, results.records, results.target_world_size)
    numbered = sorted(
        ((record.suggestion, record) for record in tried if record.suggestion is not None),
        key=lambda pair: pair[0],
    )
    if len(numbered) < 2 or tried[0].request.role != "search":
        return None
    objective = study.search.objectives[0]
    better = max if objective in MAXIMIZED else min
    points, best = [], None
    for number, record in numbered:
        value = None
        if record.steps is not None:
            scaled = results.own_scalings.get(record.trial_id)
            bearing = results.related.of(record) if scaled is None else ()
            values = choice.objective_values(study, record, bearing, scaled)
            value = values[0] if values else None
        if value is not None:
            best = value if best is None else better(best, value)
        points.append(HistoryPoint(number, value, best))
    if sum(point.value is not None for point in points) < 2:
        return None
    return SearchHistory(objective, UNITS[objective], tuple(points))
