"""How a search went: its suggestions in their order."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis import choice
from raybench.analysis.objectives import MAXIMIZED, UNITS, objective_value, prices_of
from raybench.analysis.resolve import Facts
from raybench.spec.study import Objective


@dataclass(frozen=True)
class HistoryPoint:
    """One suggestion; None where its setting has no value."""

    suggestion: int
    value: float | None
    best: float | None  # of this and those before


@dataclass(frozen=True)
class SearchHistory:
    """The suggestions in their order, by the objective in its unit."""

    objective: Objective
    unit: str
    points: tuple[HistoryPoint, ...]


def search_history(results: Facts) -> SearchHistory | None:
    """The history of a search of at least two suggestions; None without one."""
    study = results.study
    if study.search.method != "optuna":
        return None
    tried = choice.suggestions(study, results.records, results.target_world_size)
    numbered = sorted(
        ((record.suggestion, record) for record in tried if record.suggestion is not None),
        key=lambda pair: pair[0],
    )
    objective, prices = study.search.objectives[0], prices_of(study)
    better = max if objective in MAXIMIZED else min
    points, best = list[HistoryPoint](), None
    for number, record in numbered:
        found = None
        if record.steps is not None:
            found = objective_value(record, objective, results.scaling(record), prices)
        value = found.value if found else None
        if value is not None:
            best = value if best is None else better(best, value)
        points.append(HistoryPoint(number, value, best))
    if sum(point.value is not None for point in points) < 2:
        return None
    return SearchHistory(objective, UNITS[objective], tuple(points))
