"""How throughput grows with devices and batch: the table and its plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raybench.analysis.batch_lines import MarginalReturn, amdahl_speedup, marginal_returns
from raybench.analysis.curves import Curve
from raybench.analysis.results import StudyResults
from raybench.analysis.scaling import EXCELLENT, GOOD, Scaling
from raybench.analysis.waterfall import Waterfall
from raybench.records.record import TrialRecord
from raybench.records.requests import Role
from raybench.report.format import (
    count,
    interval,
    lost_milliseconds,
    milliseconds,
    percent,
    serial_fraction_words,
    share_of_step,
    times,
)
from raybench.report.plot import (
    COLORS,
    GREY,
    MOST_CURVES,
    Line,
    draw_lines,
    fewest_and_most,
    legend_below,
    legend_height,
    log2_axis,
    log_y,
    make_figure,
    make_line,
    n_words,
    percent_axis,
    shown_ends,
    write_title,
)
from raybench.report.sections.trials import in_order, label_and_mark
from raybench.report.table import Column, Table, devices, known, make_table
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def scaling_table(results: StudyResults, *roles: Role) -> Table:
    """Every trial of ``roles``, those of the curves where none is named, by setting and world size."""

    def scaling(record: TrialRecord) -> Scaling:
        return results.scalings[record.trial_id]

    records = in_order(results, *(roles or ("scaling",)))
    tokens = Column[TrialRecord](
        "tokens/s", lambda record: known(scaling(record).throughput_tokens_per_s, interval), right=True
    )
    returns = _returns(results)
    further = Column[TrialRecord](
        "a further device", lambda record: _return_cell(returns.get(record.trial_id)), right=True
    )
    columns: list[Column[TrialRecord]] = [
        Column("devices", devices, right=True),
        Column("setting", lambda record: label_and_mark(results, record)),
        Column("step time, ms", lambda record: milliseconds(scaling(record).step_time_s), right=True),
        Column("samples/s", lambda record: interval(scaling(record).throughput_samples_per_s), right=True),
        *([tokens] if any(scaling(record).throughput_tokens_per_s for record in records) else ()),
        Column("speed-up", lambda record: speedup_cell(scaling(record)), right=True),
        Column("efficiency", lambda record: efficiency_cell(scaling(record)), right=True),
        *([further] if returns else ()),
        Column("status", lambda record: _status_cell(scaling(record))),
        Column("run it again", lambda record: _again_cell(scaling(record)), right=True),
        Column("visits", lambda record: str(len(results.visits(record))), right=True),
    ]
    caption = (
        "95% intervals over all visits; run it again: the efficiency that another run would find. "
        "Speed-up and efficiency are against one device alone, without wrapper, unless a base is named. "
        f"Excellent: an efficiency of at least {EXCELLENT:.0%}; good: {GOOD:.0%}; poor: less; negative: "
        "slower than one device, with its whole interval; two words where the interval holds both."
    )
    if any(column is further for column in columns):
        caption += " A further device: the share of one alone that each brings, from so many to so many."
    if any(record.config.oversubscribed for record in results.complete):
        caption += " * more workers than cores: for correctness only."
    return make_table("Scaling", caption, columns, records)


def _returns(results: StudyResults) -> dict[str, MarginalReturn]:
    """Of the curves' points, by trial id; none where no curve has two doublings, as efficiency says it then.

    None under strong scaling, of which Amdahl's f is shown.
    """
    found = dict[str, MarginalReturn]()
    for curve in results.curves if results.study.scaling.mode == "weak" else ():
        trials = {point.world_size: point.trial_id for point in curve.points}
        speedups = ((point.world_size, point.speedup) for point in curve.points if point.speedup)
        found |= {trials[each.more]: each for each in marginal_returns(speedups)}
    return found if any(each.fewer > 1 for each in found.values()) else {}


def _return_cell(found: MarginalReturn | None) -> str:
    return f"{percent(found.each)} ({found.fewer} to {found.more})" if found else ""


def speedup_cell(scaling: Scaling) -> str:
    """The speed-up, over how many devices where it is not one; of the baseline itself 1."""
    if scaling.speedup is None or scaling.baseline is None:
        return ""
    if scaling.is_baseline:
        return "1"
    size = scaling.baseline.world_size
    return times(scaling.speedup) + ("" if size == 1 else f" over {size}")


def efficiency_cell(scaling: Scaling) -> str:
    """The efficiency; of the baseline itself 100%."""
    if scaling.efficiency is None:
        return ""
    return "100%" if scaling.is_baseline else percent(scaling.efficiency)


def _again_cell(scaling: Scaling) -> str:
    """Between which efficiencies another run would be."""
    found = scaling.efficiency
    if found is None or found.again is None or scaling.is_baseline:
        return ""
    return f"{found.again[0]:.0%} to {found.again[1]:.0%}"


def _status_cell(scaling: Scaling) -> str:
    if scaling.status is None:
        return "no baseline"
    return "baseline" if scaling.is_baseline else str(scaling.status)


@dataclass(frozen=True)
class _Overhead:
    """What a trial on several devices adds to the step of one."""

    label: str
    waterfall: Waterfall


def overheads_table(results: StudyResults) -> Table:
    """T_comm beside the exposed part, of every trial on several devices; in strong scaling Amdahl's f too."""
    records = in_order(results, "scaling") or in_order(results, "search")
    is_strong = results.study.scaling.mode == "strong"
    rows = [
        _Overhead(results.label(record), waterfall)
        for record in records
        if (waterfall := results.waterfalls[record.trial_id]) is not None and waterfall.world_size > 1
    ]
    caption = (
        "T_comm holds all that more devices add to a step, contention, wrapper and skew too; communication "
        "is the transfers that no compute hides, a difference of two steps: below 0 nothing is to be seen of "
        f"it. {_SERIAL if is_strong else ''}Mean with 95% interval over n rounds."
    )
    columns = [*_OVERHEAD_COLUMNS, *([_SERIAL_FRACTION] if is_strong else ()), _ROUNDS]
    return make_table("Overhead by world size", caption, columns, rows)


_OVERHEAD_COLUMNS: list[Column[_Overhead]] = [
    Column("devices", lambda row: str(row.waterfall.world_size), right=True),
    Column("setting", lambda row: row.label),
    Column(
        "T_comm = T(n) - T(1), ms", lambda row: known(row.waterfall.t_comm_s, lost_milliseconds), right=True
    ),
    Column("T_comm / T(n)", lambda row: known(row.waterfall.t_comm_fraction, share_of_step), right=True),
    Column(
        "communication, ms",
        lambda row: known(row.waterfall.parts.exposed_communication, lost_milliseconds),
        right=True,
    ),
    Column(
        "communication / T(n)",
        lambda row: known(row.waterfall.communication_fraction, share_of_step),
        right=True,
    ),
]
_ROUNDS = Column[_Overhead]("n", lambda row: count(row.waterfall.step_time_s), right=True)
_SERIAL_FRACTION = Column[_Overhead](
    "Amdahl's f", lambda row: known(row.waterfall.serial_fraction, serial_fraction_words), right=True
)
_SERIAL = (
    "f is the serial fraction that Amdahl's law needs for the measured speed-up (Karp and Flatt 1990): where "
    "it grows with the devices, it is overhead and not serial work. "
)


@dataclass(frozen=True)
class ScalingPlot:
    """Throughput in samples/s and efficiency over the world size."""

    world_sizes: tuple[int, ...]
    throughput: tuple[Line, ...]
    efficiency: tuple[Line, ...]
    ideal: tuple[tuple[int, float], ...]  # of the first curve, from its smallest world size, in samples/s
    num_left_out: int  # curves beyond those that a plot can hold
    rounds: tuple[int, int]  # fewest and most behind a point


def scaling_plot(results: StudyResults) -> ScalingPlot | None:
    """The scaling curves, the default's and the fastest ones first; None where all have one world size."""
    drawable = [curve for curve in results.curves if len({point.world_size for point in curve.points}) > 1]
    if not drawable:
        return None

    def speed(curve: Curve) -> tuple[bool, int, float]:
        last = curve.points[-1]
        return curve.is_default, last.world_size, last.throughput_samples_per_s.value

    shown = sorted(drawable, key=speed, reverse=True)[:MOST_CURVES]
    throughput = tuple(
        make_line(c.label, [(p.world_size, p.throughput_samples_per_s) for p in c.points]) for c in shown
    )
    efficiency = tuple(make_line(c.label, [(p.world_size, p.efficiency) for p in c.points]) for c in shown)
    sizes = tuple(sorted({point.world_size for curve in shown for point in curve.points}))
    start = shown[0].points[0]
    per_device = start.throughput_samples_per_s.value / start.world_size
    return ScalingPlot(
        world_sizes=sizes,
        throughput=throughput,
        efficiency=tuple(line for line in efficiency if len(line.points) > 1),
        ideal=tuple((size, per_device * size) for size in sizes),
        num_left_out=len(results.curves) - len(shown),
        rounds=fewest_and_most(throughput),
    )


def draw_scaling(plot: ScalingPlot) -> Figure:
    """Throughput and efficiency over the world size, side by side, with the ideal lines.

    The throughput alone where no efficiency is known of two world sizes.
    """
    columns = 2 if plot.efficiency else 1
    width = 4.5 * columns if columns > 1 else 6.4
    figure, panels = make_figure(width, 3.7 + legend_height(width, plot.throughput), columns=columns)
    left = panels[0]
    ideal_x, ideal_y = zip(*plot.ideal, strict=True)
    left.plot(ideal_x, ideal_y, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2, label="ideal")
    draw_lines(left, plot.throughput, log_x=True)
    log2_axis(left, plot.world_sizes)
    ends = shown_ends(point.estimate for line in plot.throughput for point in line.points)
    log_y(left, [*ends, *ideal_y])
    left.set_xlabel("world size (devices)")
    left.set_ylabel("throughput (samples/s)")
    for right in panels[1:]:
        right.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
        draw_lines(right, plot.efficiency, scale=100, log_x=True, styles_of=plot.throughput)
        log2_axis(right, plot.world_sizes)
        percent_axis(right, plot.efficiency)
        right.set_xlabel("world size (devices)")
        right.set_ylabel("scaling efficiency (%)")
    note = f" · {plural(plot.num_left_out, 'setting')} more in the tables" if plot.num_left_out else ""
    write_title(figure, f"Scaling: mean and 95% interval of each, {n_words(plot.rounds)}{note}")
    legend_below(figure, left)
    return figure


@dataclass(frozen=True)
class BatchPlot:
    """Efficiency over the batch at one world size."""

    world_size: int
    strong: bool
    lines: tuple[Line, ...]
    crossover: float | None  # of the first line, interpolated; None: it passes 1 never, or more than once
    brackets: int  # times that the first line passes 1
    rounds: tuple[int, int]
    at_once: int = 1  # settings, the most at a batch, that the intervals of the best hold for

    @property
    def break_even(self) -> float:
        """The efficiency at which more devices are as fast as one."""
        return 1 / self.world_size


def batch_plot(results: StudyResults) -> BatchPlot | None:
    """Efficiency against batch at the headline's world size; None where only one batch was measured."""
    curves = results.batch_curves[:MOST_CURVES]
    if not curves:
        return None
    lines = tuple(make_line(c.label, [(p.batch_size, p.efficiency) for p in c.points]) for c in curves)
    passage = curves[0].crossover
    strong = results.study.scaling.mode == "strong"
    brackets = len(passage.brackets) if passage else 0
    batch = passage.batch if passage and brackets == 1 and not passage.is_wide else None
    at_once = max(curve.at_once for curve in curves)
    return BatchPlot(curves[0].world_size, strong, lines, batch, brackets, fewest_and_most(lines), at_once)


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
    where = f" (passed {plot.brackets} times)" if plot.brackets > 1 else where
    of = f", {plot.at_once} a batch at once" if plot.at_once > 1 else " of each"
    words = f"Efficiency by batch: mean and 95% interval{of}, {n_words(plot.rounds)}"
    write_title(figure, f"{words}\nshaded: slower than one device{where}")
    if len(plot.lines) > 1:
        legend_below(figure, axes)
    return figure


@dataclass(frozen=True)
class BatchScalingPlot:
    """Throughput in samples/s and speed-up over the devices, a line for each batch."""

    world_sizes: tuple[int, ...]
    strong: bool
    throughput: tuple[Line, ...]
    speedup: tuple[Line, ...]
    ideal: tuple[float, ...]  # of each line, samples/s for each device
    # of each line at its largest world size: Amdahl's f; None where no share of a step gives the speed-up,
    # and under weak scaling
    serial_fraction: tuple[float | None, ...]
    num_left_out: int
    rounds: tuple[int, int]


def batch_scaling_plot(results: StudyResults) -> BatchScalingPlot | None:
    """Every batch over the devices; None where fewer than two batches were measured on several."""
    every = results.batch_lines
    if len(every) < 2:
        return None
    places = np.unique(np.linspace(0, len(every) - 1, min(len(every), MOST_CURVES)).round().astype(int))
    shown = [every[place] for place in places]  # the smallest, the largest, and some between
    labels = [f"batch {line.batch_size:,}" for line in shown]
    if len({line.label for line in shown}) > 1:
        labels = [f"{label}, {line.label}" for label, line in zip(labels, shown, strict=True)]
    throughput, speedup = (
        tuple(
            make_line(label, [(point.world_size, getattr(point, name)) for point in line.points])
            for label, line in zip(labels, shown, strict=True)
        )
        for name in ("throughput_samples_per_s", "speedup")
    )
    last = [line.points[-1].serial_fraction for line in shown]
    return BatchScalingPlot(
        world_sizes=tuple(sorted({point.world_size for line in shown for point in line.points})),
        strong=results.study.scaling.mode == "strong",
        throughput=throughput,
        speedup=speedup,
        ideal=tuple(line.points[0].throughput_samples_per_s.value for line in shown),
        serial_fraction=tuple(each.value if each is not None and each.value <= 1 else None for each in last),
        num_left_out=len(every) - len(shown),
        rounds=fewest_and_most(throughput),
    )


def draw_batch_scaling(plot: BatchScalingPlot) -> Figure:
    """Throughput and speed-up over the devices for each batch, with ideal lines.

    Under strong scaling with Amdahl's curves too.
    """
    figure, (left, right) = make_figure(9.0, 3.9 + legend_height(9.0, plot.throughput), columns=2)
    sizes = np.array(plot.world_sizes)
    dense = np.geomspace(sizes[0], sizes[-1], 60)
    for index, per_device in enumerate(plot.ideal):
        color = COLORS[index % len(COLORS)]
        left.plot(sizes, sizes * per_device, color=color, linestyle=(0, (1, 2)), linewidth=1.1)
    for index, fraction in enumerate(plot.serial_fraction):
        if fraction is None:
            continue
        curve = [amdahl_speedup(fraction, size) for size in dense]
        right.plot(dense, curve, color=COLORS[index % len(COLORS)], linewidth=3.5, alpha=0.25)
    right.plot(dense, dense, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    right.axhline(1, color=GREY, linewidth=0.9)
    draw_lines(left, plot.throughput, log_x=True)
    draw_lines(right, plot.speedup, log_x=True)
    ends = shown_ends(point.estimate for line in plot.throughput for point in line.points)
    log_y(left, [*ends, *(per_device * sizes[-1] for per_device in plot.ideal)])
    highest = max(sizes[-1], *shown_ends(point.estimate for line in plot.speedup for point in line.points))
    right.set_ylim(0, highest * 1.05)
    for axes, label in ((left, "throughput (samples/s)"), (right, "speed-up over one device")):
        log2_axis(axes, plot.world_sizes)
        axes.set_xlabel("world size (devices)")
        axes.set_ylabel(label)
    note = f" · {plot.num_left_out} batches more in the tables" if plot.num_left_out else ""
    kind = "global batch" if plot.strong else "batch per device"
    words = f"Each {kind}: mean and 95% interval of each, {n_words(plot.rounds)}{note}"
    slower = " (none below 1)" if None in plot.serial_fraction else ""
    law = f"; broad: Amdahl's law through the largest world size{slower}" if plot.strong else ""
    write_title(figure, f"{words}\ndotted: ideal{law}")
    legend_below(figure, left)
    return figure


def rounded_batch(batch: float) -> str:
    """A batch between two that were measured: two significant figures, it is interpolated."""
    digits = max(len(str(int(batch))) - 2, 0)
    return f"{int(round(batch, -digits)):,}"
