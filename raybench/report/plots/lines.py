"""What plots show as values: points with intervals, in labelled lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate

MOST_CURVES = 6  # more cannot be told apart


@dataclass(frozen=True)
class Point:
    """A value with its interval, at an abscissa."""

    x: float
    estimate: Estimate


@dataclass(frozen=True)
class Line:
    """One labelled series."""

    label: str
    points: tuple[Point, ...]


def make_line(label: str, points: Sequence[tuple[float, Estimate | None]]) -> Line:
    """The points whose values are known."""
    return Line(label, tuple(Point(x, estimate) for x, estimate in points if estimate is not None))


def fewest_and_most(lines: Sequence[Line]) -> tuple[int, int]:
    """How many rounds, seeds or epochs are behind a point."""
    numbers = [point.estimate.n for line in lines for point in line.points]
    return min(numbers, default=0), max(numbers, default=0)


def headline_title(results: StudyResults) -> str:
    """The headline's devices and its setting."""
    assert results.headline is not None
    return f"{devices_words(results.headline.config.world_size)}, {results.headline_label}"
