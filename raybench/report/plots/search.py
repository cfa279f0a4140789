"""A search's history: the objective of each suggestion in its order, and the best so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybench.analysis.search import SearchHistory
from raybench.report.plots.axes import whole_numbers, with_separators
from raybench.report.plots.drawing import COLORS, legend_below, make_figure, write_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 2000  # of the suggestions; more are one cloud, and make a file of megabytes


def draw_search(history: SearchHistory) -> Figure:
    """Points and a line; suggestions without a value are ticks at the bottom."""
    figure, (axes,) = make_figure(7.4, 4.0)
    step = -(-len(history.points) // MOST_POINTS)
    measured = [
        (point.suggestion, point.value) for point in history.points[::step] if point.value is not None
    ]
    failed = [point.suggestion for point in history.points if point.value is None][:MOST_POINTS]
    best = [(point.suggestion, point.best) for point in history.points if point.best is not None]
    rises = [pair for place, pair in enumerate(best) if place == 0 or pair[1] != best[place - 1][1]]
    numbers, values = zip(*measured, strict=True)
    axes.scatter(numbers, values, s=14, color=COLORS[0], label="suggestion", zorder=3)
    numbers, values = zip(*rises, best[-1], strict=True)
    axes.step(numbers, values, where="post", color=COLORS[1], label="best so far")
    if failed:
        places = [0.015] * len(failed)
        transform = axes.get_xaxis_transform()
        axes.scatter(failed, places, marker="|", color="black", transform=transform, label="without a value")
    name = history.objective.replace("_", " ")
    axes.set_xlabel("suggestion")
    axes.set_ylabel(f"{name} ({history.unit})" if history.unit else name)
    whole_numbers(axes)
    with_separators(axes.yaxis)
    more = f"; one of {step} is shown" if step > 1 else ""
    write_title(
        figure, f"The search: {len(history.points):,} suggestions, each as the search measured it{more}"
    )
    legend_below(figure, axes)
    return figure
