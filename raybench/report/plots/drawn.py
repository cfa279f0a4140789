"""A plot that is drawn, in the formats that documents take."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from raybench.report.plots.drawing import to_png, to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = TypeVar("Value")  # what a plot shows


@dataclass(frozen=True)
class DrawnPlot:
    """One plot, drawn."""

    name: str
    title: str
    png: bytes
    svg: bytes

    @property
    def svg_base64(self) -> str:
        """For a data URI: an image of its own, so that ids of two plots do not meet."""
        return base64.b64encode(self.svg).decode()


def drawn(name: str, title: str, value: Value | None, draw: Callable[[Value], Figure]) -> Iterator[DrawnPlot]:
    """The plot of ``value``; none where the records do not allow it."""
    if value is not None:
        figure = draw(value)
        yield DrawnPlot(name, title, to_png(figure), to_svg(figure))
