"""Plots, drawn from ``plot_values``: readable in black and white, units and n in the labels.

Matplotlib is imported where it is used: it costs half a second. Figures are made without pyplot, so there
is no display, no global state and nothing to close.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from raybench.analysis.batch_lines import amdahl_speedup
from raybench.analysis.efficiency import GOOD
from raybench.analysis.words import duration_words, rounded_batch
from raybench.report.plot_values import (
    BatchPlot,
    BatchScalingPlot,
    ConfigurationsPlot,
    EpochTimePlot,
    Line,
    ScalingPlot,
    StepTimePlot,
    TrainingPlot,
    WaterfallPlot,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130
CHARACTER_IN, LEGEND_HANDLE_IN = 0.076, 0.75  # sizes in a legend, in inches
# Okabe and Ito (2008), "Color universal design": told apart by the colour-blind, and by their greys.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
PART_LOOKS = {  # colour and hatch
    "ideal": ("#0072B2", ""),
    "small batch": ("#F0E442", "..."),
    "contention": ("#E69F00", "///"),
    "DDP wrapper": ("#009E73", "xxx"),
    "skew": ("#CC79A7", "\\\\\\"),
    "exposed communication": ("#56B4E9", "---"),
    "not taken apart": ("#999999", "++"),
}
GREY = "#555555"
_STYLE: Any = {  # the stubs want every key as a literal
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "raybench",  # the same values, the same file
}


def draw_scaling(plot: ScalingPlot) -> Figure:
    """Throughput and efficiency over the world size, side by side, with the ideal lines."""
    figure, (left, right) = _figure(9.0, 3.7 + _legend_height(9.0, plot.throughput), columns=2)
    ideal_x, ideal_y = zip(*plot.ideal, strict=True)
    left.plot(ideal_x, ideal_y, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2, label="ideal")
    _lines(left, plot.throughput, log_x=True)
    _log2_axis(left, plot.world_sizes)
    ends = [end for line in plot.throughput for p in line.points for end in (p.estimate.low, p.estimate.high)]
    _log_y(left, [*ends, *ideal_y])
    left.set_xlabel("world size (devices)")
    left.set_ylabel("throughput (samples/s)")
    right.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    _lines(right, plot.efficiency, scale=100, log_x=True, styles_of=plot.throughput)
    _log2_axis(right, plot.world_sizes)
    _percent_axis(right, plot.efficiency)
    right.set_xlabel("world size (devices)")
    right.set_ylabel("scaling efficiency (%)")
    note = f" · {plot.num_left_out} settings more in the tables" if plot.num_left_out else ""
    _title(figure, f"Scaling: mean and 95% interval, {_n_words(plot.rounds)}{note}")
    _legend_below(figure, left)
    return figure


def draw_batches(plot: BatchPlot) -> Figure:
    """Efficiency against the batch, with the line below which more devices are slower than one."""
    figure, (axes,) = _figure(6.4, 3.9 + _legend_height(6.4, plot.lines))
    batches = sorted({int(point.x) for line in plot.lines for point in line.points})
    axes.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    axes.axhspan(0, 100 * plot.break_even, facecolor="#eeeeee", edgecolor="#bbbbbb", hatch="//", linewidth=0)
    axes.axhline(100 * plot.break_even, color=GREY, linewidth=0.9)
    _lines(axes, plot.lines, scale=100, log_x=True)
    if plot.crossover is not None:
        axes.axvline(plot.crossover, color=GREY, linestyle=":", linewidth=1.1)
    _log2_axis(axes, batches)
    _percent_axis(axes, plot.lines)
    axes.set_xlabel("global batch (samples)" if plot.strong else "batch per device (samples)")
    axes.set_ylabel(f"scaling efficiency on {plot.world_size} devices (%)")
    where = "" if plot.crossover is None else f" (about batch {rounded_batch(plot.crossover)}, interpolated)"
    words = f"Efficiency against batch: mean and 95% interval, {_n_words(plot.rounds)}"
    _title(figure, f"{words}\nshaded: slower than one device{where}")
    if len(plot.lines) > 1:
        _legend_below(figure, axes)
    return figure


def draw_batch_scaling(plot: BatchScalingPlot) -> Figure:
    """Throughput and speed-up over the devices for each batch, with ideal lines and Amdahl's curves."""
    figure, (left, right) = _figure(9.0, 3.9 + _legend_height(9.0, plot.throughput), columns=2)
    sizes = np.array(plot.world_sizes)
    dense = np.geomspace(sizes[0], sizes[-1], 60)
    for index, per_device in enumerate(plot.ideal):
        color = COLORS[index % len(COLORS)]
        left.plot(sizes, sizes * per_device, color=color, linestyle=(0, (1, 2)), linewidth=1.1)
    for index, fraction in enumerate(plot.serial_fraction):
        curve = [amdahl_speedup(fraction, size) for size in dense]
        right.plot(dense, curve, color=COLORS[index % len(COLORS)], linewidth=3.5, alpha=0.25)
    right.plot(dense, dense, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    right.axhline(1, color=GREY, linewidth=0.9)
    _lines(left, plot.throughput, log_x=True)
    _lines(right, plot.speedup, log_x=True)
    values = [
        end for line in plot.throughput for p in line.points for end in (p.estimate.low, p.estimate.high)
    ]
    _log_y(left, [*values, *(per_device * sizes[-1] for per_device in plot.ideal)])
    highest = max(sizes[-1], *(p.estimate.high for line in plot.speedup for p in line.points))
    right.set_ylim(0, highest * 1.05)
    for axes, label in ((left, "throughput (samples/s)"), (right, "speed-up over one device")):
        _log2_axis(axes, plot.world_sizes)
        axes.set_xlabel("world size (devices)")
        axes.set_ylabel(label)
    note = f" · {plot.num_left_out} batches more in the tables" if plot.num_left_out else ""
    kind = "global batch" if plot.strong else "batch per device"
    words = f"Each {kind}: mean and 95% interval, {_n_words(plot.rounds)}{note}"
    _title(figure, f"{words}\ndotted: ideal; broad: Amdahl's law through the largest world size")
    _legend_below(figure, left)
    return figure


def draw_configurations(plot: ConfigurationsPlot) -> Figure:
    """Speed-up, efficiency and throughput of each configuration, with the ideal and the good as lines."""
    rows = len(plot.labels)
    figure, axes = _figure(9.6, 1.5 + 0.4 * rows, columns=3)
    panels = (
        (axes[0], plot.speedup, 1.0, "speed-up over one device", (1.0, float(plot.world_size))),
        (axes[1], plot.efficiency, 100.0, "scaling efficiency (%)", (100 * GOOD, 100.0)),
        (axes[2], plot.throughput, 1.0, "throughput (samples/s)", ()),
    )
    for index, (panel, estimates, scale, label, lines) in enumerate(panels):
        for row, estimate in enumerate(estimates):
            value = estimate.value * scale
            color = COLORS[1] if plot.speedup[row].value < 1 else COLORS[0]
            hatch = "///" if plot.speedup[row].value < 1 else ""
            _bar(panel, row, 0, value, color, hatch)
            error = np.array([[value - estimate.low * scale], [estimate.high * scale - value]])
            panel.errorbar(value, row, xerr=error, color="black", capsize=3, linewidth=1.1, fmt="none")
        for place, line in enumerate(lines):
            panel.axvline(line, color=GREY, linestyle="--" if place == 0 else (0, (1, 2)), linewidth=1.2)
        highest = max([each.high * scale for each in estimates] + list(lines))
        panel.set_xlim(0, highest * 1.06)
        panel.set_xlabel(label)
        panel.set_yticks(
            range(rows), [_wrapped(each, 34) for each in plot.labels] if index == 0 else [""] * rows
        )
        panel.set_ylim(rows - 0.4, -0.6)
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", length=0)
    _few_numbers(axes[2])
    note = f" · {plot.num_left_out} configurations between them in diagnosis.md" if plot.num_left_out else ""
    words = (
        f"Configurations on {plot.world_size} devices: mean and 95% interval, {_n_words(plot.rounds)}{note}"
    )
    _title(
        figure,
        f"{words}\ndashed: as fast as one device, good ({GOOD:.0%}); dotted: ideal; hatched: slower than one",
    )
    return figure


def draw_waterfall(plot: WaterfallPlot) -> Figure:
    """The parts of a step, one below the other, each from where the last one ended."""
    figure, (axes,) = _figure(7.4, 1.6 + 0.42 * (len(plot.bars) + 1))
    labels = [bar.label for bar in plot.bars] + ["step time"]
    for row, bar in enumerate(plot.bars):
        _bar(axes, row, bar.start_s * 1e3, bar.part.value * 1e3, *PART_LOOKS[bar.label])
        end_s = bar.start_s + bar.part.value
        _whisker(axes, row, bar.start_s + bar.part.low, end_s, bar.start_s + bar.part.high)
        right_s = max(end_s, bar.start_s, bar.start_s + bar.part.high)
        share = bar.part.value / plot.step_time_s.value
        _note(axes, right_s, row, f"{duration_words(bar.part.value)} ({share:.1%})")
    row, step_s = len(plot.bars), plot.step_time_s
    _bar(axes, row, 0, step_s.value * 1e3, "#bbbbbb", "")
    _whisker(axes, row, step_s.low, step_s.value, step_s.high)
    _note(axes, step_s.high, row, duration_words(step_s.value))
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    furthest_s = max(step_s.high, *(bar.start_s + max(bar.part.high, 0) for bar in plot.bars))
    axes.set_xlim(0, furthest_s * 1e3 * 1.3)  # room for the notes
    axes.set_xlabel("time in a step (ms)")
    words = f"Where the time of a step goes: mean and 95% interval, n = {step_s.n} rounds"
    _title(figure, f"{words}\n{_wrapped(plot.title, 80)}")
    return figure


def draw_step_times(plot: StepTimePlot) -> Figure:
    """The cumulative distribution of each variant's step times; rare slow ones are beyond the edge."""
    figure, (axes,) = _figure(7.4, 4.4)
    for index, each in enumerate(plot.distributions):
        share = np.arange(1, len(each.sorted_s) + 1) / len(each.sorted_s) * 100
        axes.step(
            each.sorted_s * 1e3,
            share,
            where="post",
            color=COLORS[index % len(COLORS)],
            linestyle=STYLES[index % len(STYLES)],
            linewidth=1.6,
            label=f"{each.label} (n = {len(each.sorted_s):,})",
        )
    low_s, high_s = _bulk(plot)
    axes.set_xlim(low_s * 1e3, high_s * 1e3)
    axes.set_ylim(0, 102)
    what = "step" if plot.of_steps else "block"
    beyond = sum(int((each.sorted_s > high_s).sum()) for each in plot.distributions)
    cut = f"\n{beyond} slower {what}{'s' if beyond > 1 else ''} beyond the right edge" if beyond else ""
    axes.set_xlabel("step time, slowest rank (ms)" if plot.of_steps else "mean step time of a block (ms)")
    axes.set_ylabel(f"share of {what}s at most as long (%)")
    _title(figure, f"Distribution of step times\n{_wrapped(plot.title, 80)}{cut}")
    _legend_below(figure, axes)
    return figure


def draw_training(plot: TrainingPlot) -> Figure:
    """Test accuracy and test loss over the epochs, side by side; the loss alone without accuracies."""
    panels = [("test accuracy (%)", plot.accuracy, 100.0)] if plot.accuracy else []
    panels.append(("test loss", plot.loss, 1.0))
    width = 4.6 * len(panels)
    figure, axes = _figure(width, 3.7 + _legend_height(width, plot.loss), columns=len(panels))
    for panel, (label, lines, scale) in zip(axes, panels, strict=True):
        _lines(panel, lines, scale, shift=0.04)
        _whole_numbers(panel)
        panel.set_xlim(0.5, max(point.x for line in lines for point in line.points) + 0.5)
        panel.set_xlabel("epoch")
        panel.set_ylabel(label)
    if plot.accuracy:  # the interval of a few seeds may reach beyond what an accuracy can be
        low, high = axes[0].get_ylim()
        axes[0].set_ylim(max(low, 0.0), min(high, 100.0))
    if plot.accuracy and plot.target is not None:
        axes[0].axhline(100 * plot.target, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    target = f"\ndotted: the target of {plot.target:.1%}" if plot.accuracy and plot.target else ""
    _title(figure, f"Training: {_n_words(plot.seeds, 'seed', 'mean and 95% interval, ')}{target}")
    _legend_below(figure, axes[0])
    return figure


def draw_epoch_times(plot: EpochTimePlot) -> Figure:
    """Training time of an epoch over the world size, with the ideal line from one device."""
    figure, (axes,) = _figure(6.4, 3.7 + _legend_height(6.4, plot.lines))
    ideal_x, ideal_y = zip(*plot.ideal, strict=True)
    axes.plot(ideal_x, ideal_y, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2, label="ideal")
    _lines(axes, plot.lines, log_x=True)
    _log2_axis(axes, plot.world_sizes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("world size (devices)")
    axes.set_ylabel("training time of an epoch (s)")
    words = _n_words(plot.epochs, "epoch", "mean and 95% interval, ")
    _title(figure, f"Epoch time, without evaluation: {words}")
    _legend_below(figure, axes)
    return figure


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _bulk(plot: StepTimePlot) -> tuple[float, float]:
    """From where to where the axis goes, in s: all but the far tail of each variant."""
    ends = []
    for each in plot.distributions:
        ten, ninety = np.quantile(each.sorted_s, (0.1, 0.9))
        ends.append(min(each.sorted_s[-1], ninety + 3 * (ninety - ten)))
    low, high = min(each.sorted_s[0] for each in plot.distributions), max(ends)
    margin = 0.04 * max(high - low, 0.02 * high)
    return float(low - margin), float(high + margin)


def to_png(figure: Figure) -> bytes:
    """The figure as PNG."""
    return _saved(figure, "png", dpi=DPI, metadata={"Software": "raybench"})


def to_svg(figure: Figure) -> bytes:
    """The figure as SVG, letters as outlines, without a date."""
    return _saved(figure, "svg", metadata={"Date": None})


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    import matplotlib as mpl

    file = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(file, format=kind, **options)
    return file.getvalue()


def _figure(width_in: float, height_in: float, columns: int = 1) -> tuple[Figure, tuple[Axes, ...]]:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        axes = tuple(figure.add_subplot(1, columns, index + 1) for index in range(columns))
    return figure, axes


def _lines(
    axes: Axes,
    lines: Sequence[Line],
    scale: float = 1.0,
    *,
    log_x: bool = False,
    shift: float = 0.0,
    styles_of: Sequence[Line] = (),
) -> None:
    """Lines with error bars; ``styles_of`` keeps a line's looks where others are left out."""
    labels = [line.label for line in styles_of or lines]
    for line in lines:
        index = labels.index(line.label)
        x = np.array([point.x for point in line.points])
        # A hair apart, so that error bars at one abscissa do not hide each other.
        place = index - (len(labels) - 1) / 2
        x = x * 2 ** (place * 0.012) if log_x and len(labels) > 1 else x + place * shift
        y, low, high = (
            np.array([getattr(point.estimate, name) for point in line.points]) * scale
            for name in ("value", "low", "high")
        )
        axes.errorbar(
            x,
            y,
            yerr=np.vstack([y - low, high - y]),
            label=line.label,
            color=COLORS[index % len(COLORS)],
            marker=MARKERS[index % len(MARKERS)],
            linestyle=STYLES[index % len(STYLES)],
            markersize=5,
            linewidth=1.4,
            elinewidth=1.1,
            capsize=3,
            markerfacecolor="white" if index % 2 else COLORS[index % len(COLORS)],
        )


def _log2_axis(axes: Axes, values: Sequence[int]) -> None:
    """A logarithmic abscissa with plain numbers at what was measured."""
    from matplotlib.ticker import NullFormatter, NullLocator

    axes.set_xscale("log", base=2)
    shown = _apart(values)
    axes.set_xticks(shown, [f"{value:,}" for value in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(values) / 2**0.3, max(values) * 2**0.3)


def _apart(values: Sequence[int]) -> list[int]:
    """The values whose labels have room beside each other, the largest kept."""
    room = np.log2(max(values) / min(values)) / 10
    kept: list[int] = []
    for value in sorted(values, reverse=True):
        if not kept or np.log2(kept[-1] / value) >= room:
            kept.append(value)
    return kept[::-1]


def _log_y(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic ordinate with plain numbers, enough of them however short it is."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    span = max(values) / min(values)
    axes.set_yscale("log")
    low, high = min(values) / 1.15, max(values) * 1.15
    if span < 4:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    else:
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if span < 1000 else (1,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_ylim(low, high)


def _few_numbers(axes: Axes) -> None:
    """Large numbers with separators, so few that they do not meet."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _percent_axis(axes: Axes, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import MultipleLocator

    highest = max((point.estimate.high for line in lines for point in line.points), default=1.0)
    axes.set_ylim(0, 100 * max(1.08, highest * 1.04))
    axes.yaxis.set_major_locator(MultipleLocator(20))


def _bar(axes: Axes, row: int, start_ms: float, width_ms: float, color: str, hatch: str) -> None:
    axes.barh(row, width_ms, left=start_ms, height=0.62, color=color, alpha=0.75)
    # The hatch in a bar of its own: alpha would fade it too.
    axes.barh(
        row, width_ms, left=start_ms, height=0.62, color="none", edgecolor="black", hatch=hatch, linewidth=0.7
    )


def _whisker(axes: Axes, row: int, low_s: float, value_s: float, high_s: float) -> None:
    error = np.array([[value_s - low_s], [high_s - value_s]]) * 1e3
    axes.errorbar(value_s * 1e3, row, xerr=error, color="black", capsize=3, linewidth=1.1, fmt="none")


def _note(axes: Axes, at_s: float, row: int, text: str) -> None:
    axes.annotate(text, (at_s * 1e3, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)


def _title(figure: Figure, text: str) -> None:
    """Over the whole figure: centred over the axes, a long one would run out of it."""
    figure.suptitle(text, fontsize=10.5)


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns, characters = _legend_shape(figure.get_figwidth(), labels)
    wrapped = [_wrapped(label, characters) for label in labels]
    figure.legend(handles, wrapped, loc="outside lower center", ncols=columns, frameon=False)


def _legend_shape(width_in: float, labels: Sequence[str]) -> tuple[int, int]:
    """Columns of a legend, and characters of a line in it: as many columns as leave the labels whole."""
    longest = max(map(len, labels), default=1)
    for columns in (3, 2):
        characters = int((width_in / columns - LEGEND_HANDLE_IN) / CHARACTER_IN)
        if longest <= characters:
            break
    return min(columns, 2 if len(labels) in (2, 4) else 3, max(len(labels), 1)), characters


def _legend_height(width_in: float, lines: Sequence[Line]) -> float:
    """Room for the legend below, in inches."""
    labels = [line.label for line in lines]
    columns, characters = _legend_shape(width_in, labels)
    rows = -(-(len(lines) + 1) // columns)
    longest = max((_wrapped(label, characters).count("\n") + 1 for label in labels), default=1)
    return 0.17 * rows * longest + 0.1


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width, break_long_words=True)) or text


def _n_words(rounds: tuple[int, int], unit: str = "round", interval: str = "") -> str:
    """The number behind each point; of a single one there is no interval to speak of."""
    few, many = rounds
    if many == 1 and interval:
        return f"n = 1 {unit}, no interval"
    return interval + (f"n = {few} {unit}s" if few == many else f"n = {few} to {many} {unit}s")
