"""Plots, drawn from ``plot_values``: readable in black and white, units and n in the labels.

Matplotlib is imported where it is used: it costs half a second. Figures are made without pyplot, so there
is no display, no global state and nothing to close.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from raybench.analysis.batch_lines import amdahl_speedup
from raybench.analysis.estimates.efficiency import GOOD
from raybench.report.plots.drawing import (
    COLORS,
    GREY,
    STYLES,
    draw_bar,
    draw_lines,
    draw_whisker,
    few_numbers,
    in_lines,
    legend_below,
    legend_height,
    log2_axis,
    log_y,
    make_figure,
    n_words,
    percent_axis,
    whole_numbers,
    write_note,
    write_title,
)
from raybench.report.plots.values import (
    BatchPlot,
    BatchScalingPlot,
    ConfigurationsPlot,
    EpochTimePlot,
    ScalingPlot,
    StepTimePlot,
    TrainingPlot,
    WaterfallPlot,
)
from raybench.report.wording import duration_words, rounded_batch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PART_LOOKS = {  # colour and hatch
    "ideal": ("#0072B2", ""),
    "small batch": ("#F0E442", "..."),
    "contention": ("#E69F00", "///"),
    "DDP wrapper": ("#009E73", "xxx"),
    "skew": ("#CC79A7", "\\\\\\"),
    "exposed communication": ("#56B4E9", "---"),
    "not taken apart": ("#999999", "++"),
}


def draw_scaling(plot: ScalingPlot) -> Figure:
    """Throughput and efficiency over the world size, side by side, with the ideal lines."""
    figure, (left, right) = make_figure(9.0, 3.7 + legend_height(9.0, plot.throughput), columns=2)
    ideal_x, ideal_y = zip(*plot.ideal, strict=True)
    left.plot(ideal_x, ideal_y, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2, label="ideal")
    draw_lines(left, plot.throughput, log_x=True)
    log2_axis(left, plot.world_sizes)
    ends = [end for line in plot.throughput for p in line.points for end in (p.estimate.low, p.estimate.high)]
    log_y(left, [*ends, *ideal_y])
    left.set_xlabel("world size (devices)")
    left.set_ylabel("throughput (samples/s)")
    right.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    draw_lines(right, plot.efficiency, scale=100, log_x=True, styles_of=plot.throughput)
    log2_axis(right, plot.world_sizes)
    percent_axis(right, plot.efficiency)
    right.set_xlabel("world size (devices)")
    right.set_ylabel("scaling efficiency (%)")
    note = f" · {plot.num_left_out} settings more in the tables" if plot.num_left_out else ""
    write_title(figure, f"Scaling: mean and 95% interval, {n_words(plot.rounds)}{note}")
    legend_below(figure, left)
    return figure


def draw_batches(plot: BatchPlot) -> Figure:
    """Efficiency against the batch, with the line below which more devices are slower than one."""
    figure, (axes,) = make_figure(6.4, 3.9 + legend_height(6.4, plot.lines))
    batches = sorted({int(point.x) for line in plot.lines for point in line.points})
    axes.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    axes.axhspan(0, 100 * plot.break_even, facecolor="#eeeeee", edgecolor="#bbbbbb", hatch="//", linewidth=0)
    axes.axhline(100 * plot.break_even, color=GREY, linewidth=0.9)
    draw_lines(axes, plot.lines, scale=100, log_x=True, as_powers=True)
    if plot.crossover is not None:
        axes.axvline(plot.crossover, color=GREY, linestyle=":", linewidth=1.1)
    log2_axis(axes, batches)
    percent_axis(axes, plot.lines)
    axes.set_xlabel("global batch (samples)" if plot.strong else "batch per device (samples)")
    axes.set_ylabel(f"scaling efficiency on {plot.world_size} devices (%)")
    where = "" if plot.crossover is None else f" (about batch {rounded_batch(plot.crossover)}, interpolated)"
    words = f"Efficiency against batch: mean and 95% interval, {n_words(plot.rounds)}"
    write_title(figure, f"{words}\nshaded: slower than one device{where}")
    if len(plot.lines) > 1:
        legend_below(figure, axes)
    return figure


def draw_batch_scaling(plot: BatchScalingPlot) -> Figure:
    """Throughput and speed-up over the devices for each batch, with ideal lines and Amdahl's curves."""
    figure, (left, right) = make_figure(9.0, 3.9 + legend_height(9.0, plot.throughput), columns=2)
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
    draw_lines(left, plot.throughput, log_x=True)
    draw_lines(right, plot.speedup, log_x=True)
    values = [
        end for line in plot.throughput for p in line.points for end in (p.estimate.low, p.estimate.high)
    ]
    log_y(left, [*values, *(per_device * sizes[-1] for per_device in plot.ideal)])
    highest = max(sizes[-1], *(p.estimate.high for line in plot.speedup for p in line.points))
    right.set_ylim(0, highest * 1.05)
    for axes, label in ((left, "throughput (samples/s)"), (right, "speed-up over one device")):
        log2_axis(axes, plot.world_sizes)
        axes.set_xlabel("world size (devices)")
        axes.set_ylabel(label)
    note = f" · {plot.num_left_out} batches more in the tables" if plot.num_left_out else ""
    kind = "global batch" if plot.strong else "batch per device"
    words = f"Each {kind}: mean and 95% interval, {n_words(plot.rounds)}{note}"
    write_title(figure, f"{words}\ndotted: ideal; broad: Amdahl's law through the largest world size")
    legend_below(figure, left)
    return figure


def draw_configurations(plot: ConfigurationsPlot) -> Figure:
    """Speed-up, efficiency and throughput of each configuration, with the ideal and the good as lines."""
    rows = len(plot.labels)
    figure, axes = make_figure(9.6, 1.5 + 0.4 * rows, columns=3)
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
            draw_bar(panel, row, 0, value, color, hatch)
            error = np.array([[value - estimate.low * scale], [estimate.high * scale - value]])
            panel.errorbar(value, row, xerr=error, color="black", capsize=3, linewidth=1.1, fmt="none")
        for place, line in enumerate(lines):
            panel.axvline(line, color=GREY, linestyle="--" if place == 0 else (0, (1, 2)), linewidth=1.2)
        highest = max([each.high * scale for each in estimates] + list(lines))
        panel.set_xlim(0, highest * 1.06)
        panel.set_xlabel(label)
        panel.set_yticks(
            range(rows), [in_lines(each, 34) for each in plot.labels] if index == 0 else [""] * rows
        )
        panel.set_ylim(rows - 0.4, -0.6)
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", length=0)
    few_numbers(axes[2])
    note = f" · {plot.num_left_out} configurations between them in diagnosis.md" if plot.num_left_out else ""
    words = (
        f"Configurations on {plot.world_size} devices: mean and 95% interval, {n_words(plot.rounds)}{note}"
    )
    write_title(
        figure,
        f"{words}\ndashed: as fast as one device, good ({GOOD:.0%}); dotted: ideal; hatched: slower than one",
    )
    return figure


def draw_waterfall(plot: WaterfallPlot) -> Figure:
    """The parts of a step, one below the other, each from where the last one ended."""
    figure, (axes,) = make_figure(7.4, 1.6 + 0.42 * (len(plot.bars) + 1))
    labels = [bar.label for bar in plot.bars] + ["step time"]
    for row, bar in enumerate(plot.bars):
        draw_bar(axes, row, bar.start_s * 1e3, bar.part.value * 1e3, *PART_LOOKS[bar.label])
        end_s = bar.start_s + bar.part.value
        draw_whisker(axes, row, bar.start_s + bar.part.low, end_s, bar.start_s + bar.part.high)
        right_s = max(end_s, bar.start_s, bar.start_s + bar.part.high)
        share = bar.part.value / plot.step_time_s.value
        write_note(axes, right_s, row, f"{duration_words(bar.part.value)} ({share:.1%})")
    row, step_s = len(plot.bars), plot.step_time_s
    draw_bar(axes, row, 0, step_s.value * 1e3, "#bbbbbb", "")
    draw_whisker(axes, row, step_s.low, step_s.value, step_s.high)
    write_note(axes, step_s.high, row, duration_words(step_s.value))
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    furthest_s = max(step_s.high, *(bar.start_s + max(bar.part.high, 0) for bar in plot.bars))
    axes.set_xlim(0, furthest_s * 1e3 * 1.3)  # room for the notes
    axes.set_xlabel("time in a step (ms)")
    words = f"Where the time of a step goes: mean and 95% interval, n = {step_s.n} rounds"
    write_title(figure, f"{words}\n{in_lines(plot.title, 80)}")
    return figure


def draw_step_times(plot: StepTimePlot) -> Figure:
    """The cumulative distribution of each variant's step times; rare slow ones are beyond the edge."""
    figure, (axes,) = make_figure(7.4, 4.4)
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
    write_title(figure, f"Distribution of step times\n{in_lines(plot.title, 80)}{cut}")
    legend_below(figure, axes)
    return figure


def draw_training(plot: TrainingPlot) -> Figure:
    """Test accuracy and test loss over the epochs, side by side; the loss alone without accuracies."""
    panels = [("test accuracy (%)", plot.accuracy, 100.0)] if plot.accuracy else []
    panels.append(("test loss", plot.loss, 1.0))
    width = 4.6 * len(panels)
    figure, axes = make_figure(width, 3.7 + legend_height(width, plot.loss), columns=len(panels))
    for panel, (label, lines, scale) in zip(axes, panels, strict=True):
        draw_lines(panel, lines, scale, shift=0.04)
        whole_numbers(panel)
        panel.set_xlim(0.5, max(point.x for line in lines for point in line.points) + 0.5)
        panel.set_xlabel("epoch")
        panel.set_ylabel(label)
    if plot.accuracy:  # the interval of a few seeds may reach beyond what an accuracy can be
        low, high = axes[0].get_ylim()
        axes[0].set_ylim(max(low, 0.0), min(high, 100.0))
    if plot.accuracy and plot.target is not None:
        axes[0].axhline(100 * plot.target, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    target = f"\ndotted: the target of {plot.target:.1%}" if plot.accuracy and plot.target else ""
    write_title(figure, f"Training: {n_words(plot.seeds, 'seed', 'mean and 95% interval, ')}{target}")
    legend_below(figure, axes[0])
    return figure


def draw_epoch_times(plot: EpochTimePlot) -> Figure:
    """Training time of an epoch over the world size, with the ideal line from one device."""
    figure, (axes,) = make_figure(6.4, 3.7 + legend_height(6.4, plot.lines))
    ideal_x, ideal_y = zip(*plot.ideal, strict=True)
    axes.plot(ideal_x, ideal_y, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2, label="ideal")
    draw_lines(axes, plot.lines, log_x=True)
    log2_axis(axes, plot.world_sizes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("world size (devices)")
    axes.set_ylabel("training time of an epoch (s)")
    words = n_words(plot.epochs, "epoch", "mean and 95% interval, ")
    write_title(figure, f"Epoch time, without evaluation: {words}")
    legend_below(figure, axes)
    return figure


def _bulk(plot: StepTimePlot) -> tuple[float, float]:
    """From where to where the axis goes, in s: all but the far tail of each variant."""
    ends = []
    for each in plot.distributions:
        ten, ninety = np.quantile(each.sorted_s, (0.1, 0.9))
        ends.append(min(each.sorted_s[-1], ninety + 3 * (ninety - ten)))
    low, high = min(each.sorted_s[0] for each in plot.distributions), max(ends)
    margin = 0.04 * max(high - low, 0.02 * high)
    return float(low - margin), float(high + margin)
