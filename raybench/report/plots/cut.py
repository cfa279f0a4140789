"""Intervals that leave the picture: an arrow at the frame says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CUT = "cut"  # what marks an interval that leaves the picture


def mark_cut(figure: Figure) -> None:
    """An arrow at the frame for each error bar that leaves the picture there."""
    from matplotlib.container import ErrorbarContainer

    for axes in figure.axes:
        for old in [each for each in axes.lines if each.get_gid() == CUT]:
            old.remove()
        for container in [each for each in axes.containers if isinstance(each, ErrorbarContainer)]:
            for bars in container.lines[2]:
                color = bars.get_color()[0]
                for start, end in bars.get_segments():
                    _mark_cut(axes, (start, end), color)


def _mark_cut(axes: Axes, ends: Sequence[Any], color: Any) -> None:
    (x_low, y_low), (x_high, y_high) = ends
    if x_low == x_high:
        limits, low, high, markers = axes.get_ylim(), y_low, y_high, ("v", "^")
    else:
        limits, low, high, markers = axes.get_xlim(), x_low, x_high, ("<", ">")
    for edge, leaves, marker in ((0, low < min(limits), markers[0]), (1, high > max(limits), markers[1])):
        if not leaves:
            continue
        across = edge if limits[0] < limits[1] else 1 - edge
        place = (x_low, across) if x_low == x_high else (across, y_low)
        transform = axes.get_xaxis_transform() if x_low == x_high else axes.get_yaxis_transform()
        axes.plot(
            [place[0]], [place[1]], marker=marker, color=color, markersize=7, linestyle="none",
            transform=transform, clip_on=False, zorder=4, gid=CUT, scalex=False, scaley=False,
        )  # fmt: skip
