"""The headline's step taken apart, from ideal to measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.report.format import PART_WORDS, duration_words
from raybench.report.plots.axes import REACH
from raybench.report.plots.drawing import (
    draw_bar,
    draw_whisker,
    in_lines,
    make_figure,
    write_note,
    write_title,
)
from raybench.report.plots.lines import headline_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PART_LOOKS = {  # colour and hatch
    "ideal": ("#0072B2", ""),
    "small batch": ("#F0E442", "..."),
    "contention": ("#E69F00", "///"),
    "DDP wrapper": ("#009E73", "xxx"),
    "skew": ("#CC79A7", "\\\\\\"),
    "communication": ("#56B4E9", "---"),
    "not taken apart": ("#999999", "++"),
}


@dataclass(frozen=True)
class Bar:
    """One part of a step, from where the last one ended."""

    label: str
    start_s: float
    part: Estimate  # s


@dataclass(frozen=True)
class WaterfallPlot:
    """A step from ideal to measured."""

    title: str
    bars: tuple[Bar, ...]
    step_time_s: Estimate


def waterfall_plot(results: StudyResults, name: str = "") -> WaterfallPlot | None:
    """The headline's step taken apart; None on one device. ``name`` is the results', of several."""
    waterfall = results.waterfall
    if waterfall is None or waterfall.world_size == 1:
        return None
    bars, end_s = [], 0.0
    for each, part in waterfall.parts.present().items():
        bars.append(Bar(PART_WORDS[each], end_s, part))
        end_s += part.value
    title = f"{name}: {headline_title(results)}" if name else headline_title(results)
    return WaterfallPlot(title, tuple(bars), waterfall.step_time_s)


def draw_waterfall(plot: WaterfallPlot) -> Figure:
    """The parts of a step, one below the other, each from where the last one ended."""
    figure, (axes,) = make_figure(7.4, 1.6 + 0.42 * (len(plot.bars) + 1))
    labels = [bar.label for bar in plot.bars] + ["step time"]
    ends_s = [bar.start_s + max(bar.part.value, 0) for bar in plot.bars]
    most_s = REACH * max(plot.step_time_s.value, *ends_s)  # an interval that is wider leaves the picture
    for row, bar in enumerate(plot.bars):
        draw_bar(axes, row, bar.start_s * 1e3, bar.part.value * 1e3, *PART_LOOKS[bar.label])
        end_s = bar.start_s + bar.part.value
        low_s = bar.start_s + bar.part.not_negative.low
        draw_whisker(axes, row, low_s, end_s, bar.start_s + bar.part.high)
        right_s = min(max(end_s, bar.start_s, bar.start_s + bar.part.high), most_s)
        share = bar.part.value / plot.step_time_s.value
        write_note(axes, right_s, row, f"{duration_words(bar.part.value)} ({share:.1%})")
    row, step_s = len(plot.bars), plot.step_time_s
    draw_bar(axes, row, 0, step_s.value * 1e3, "#bbbbbb", "")
    draw_whisker(axes, row, step_s.low, step_s.value, step_s.high)
    write_note(axes, min(step_s.high, most_s), row, duration_words(step_s.value))
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    furthest_s = max(step_s.high, *(bar.start_s + max(bar.part.high, 0) for bar in plot.bars))
    axes.set_xlim(0, min(furthest_s, most_s) * 1e3 * 1.3)  # room for the notes
    axes.set_xlabel("time in a step (ms)")
    starts = "" if step_s.starts == 1 else f" in {step_s.starts} starts"
    words = f"Where the time of a step goes: mean and 95% interval, n = {step_s.n} rounds{starts}"
    write_title(figure, f"{words}\n{in_lines(plot.title, 80)}")
    return figure
