"""How throughput grows with devices and batch: the table and its plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raybench.analysis.labels import devices_of, devices_words, label, short_labels
from raybench.analysis.results import StudyResults
from raybench.analysis.scaling import EXCELLENT, GOOD, Scaling
from raybench.analysis.settings import SettingPoint, ShownSetting
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.waterfall import Waterfall
from raybench.report.format import (
    figures,
    interval,
    milliseconds,
    number_words,
    percent,
    plain_share,
    sentence,
    serial_fraction_words,
    times,
)
from raybench.report.plot import (
    COLORS,
    GREY,
    Line,
    draw_lines,
    in_lines,
    label_lines,
    legend_below,
    log2_axis,
    make_figure,
    make_line,
    shown_ends,
    with_separators,
    write_title,
)
from raybench.report.prediction import returns_words
from raybench.report.sections.trials import mark
from raybench.report.table import NONE, Column, Table, known, make_table
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MFU = "MFU: of the peak of large matrix products (of the data sheet's)."
STATUS = (
    f"Excellent: {EXCELLENT:.0%} efficiency or more; good: {GOOD:.0%}; poor: less; negative: certainly "
    "slower than one."
)
# bars: of one device; of more where they are slower than one, and where neither is shown
ONE_DEVICE, SLOWER, UNSURE, IDEAL = "#9aa4b0", "#B5442E", "#8fb8d4", "#e6e6e6"
WIDTH_IN = 7.5
MOST_NAMED = 2  # settings in a title


@dataclass(frozen=True)
class Row:
    """A setting on one number of devices."""

    label: str
    short: str  # by what differs among the rows
    point: SettingPoint
    mfu: float | None
    mfu_datasheet: float | None


def scaling_rows(results: StudyResults) -> list[Row]:
    """The settings shown, on each of their numbers of devices; one device of equal settings once."""
    mfus = {each.trial_id: (each.mfu, each.mfu_datasheet) for each in results.summaries}
    points = [point for setting in results.settings for point in setting.points]
    shorter = short_labels(results.study, [point.config for point in points])
    rows = dict[tuple[str, int], Row]()
    for point, short in zip(points, shorter, strict=True):
        own = mfus.get(point.record.trial_id) if point.config == point.record.config else None
        star = mark(point.config)
        words = label(results.study, point.config) + star
        rows.setdefault((words, point.world_size), Row(words, short + star, point, *(own or (None, None))))
    return list(rows.values())


def scaling_table(results: StudyResults) -> Table:
    """The settings to look at, on each of their numbers of devices."""
    rows = scaling_rows(results)
    has_mfu = any(row.mfu is not None for row in rows)
    mfu = Column[Row]("MFU", _mfu_cell, right=True)
    status = Column[Row]("status", lambda row: _status_cell(row.point.scaling))
    columns: list[Column[Row]] = [
        Column("devices", lambda row: str(row.point.world_size), right=True),
        Column("setting", lambda row: row.label, stays=True),
        Column("step time, ms", lambda row: milliseconds(row.point.scaling.step_time_s), right=True),
        Column("samples/s", lambda row: interval(row.point.scaling.throughput_samples_per_s), right=True),
        Column("speed-up", lambda row: speedup_cell(row.point.scaling), right=True, stays=True),
        Column("efficiency", lambda row: efficiency_cell(row.point.scaling), right=True, stays=True),
        Column("in another run", lambda row: _again_cell(row.point.scaling), right=True),
        mfu if has_mfu else status,
    ]
    last = MFU if has_mfu else STATUS
    first = f"95% intervals of this run, {_n_words(rows)}. In another run: where efficiency would lie."
    caption = " ".join([first, *_tokens_words(rows), last])
    if left_out := more_settings(results):
        caption += f" {plural(left_out, 'setting')} more in summary.csv."
    if any(record.config.oversubscribed for record in results.complete):
        caption += " * more workers than cores: for correctness only."
    return make_table("Scaling", caption, columns, rows)


def more_settings(results: StudyResults) -> int:
    """How many settings were measured that are not shown."""
    return len(results.compared) - len(results.settings)


def _n_words(rows: Sequence[Row]) -> str:
    """What is behind the rows: "n = 5 to 12 rounds in 1 to 3 visits, spread over the study"."""
    found = [row.point.scaling.step_time_s for row in rows]
    starts = [each.starts for each in found]
    words = f"n = {number_words([each.n for each in found], 'round')}"
    words += f" in {number_words([each.visits for each in found], 'visit')}"
    words += ", spread over the study" if max((each.visits for each in found), default=1) > 1 else ""
    return f"{words}, {number_words(starts, 'start')} of the workers" if max(starts, default=1) > 1 else words


def _tokens_words(rows: Sequence[Row]) -> list[str]:
    """By what to multiply samples/s for tokens/s, where samples have tokens."""
    scalings = [row.point.scaling for row in rows]
    tokens = [
        each.throughput_tokens_per_s.value / each.throughput_samples_per_s.value
        for each in scalings
        if each.throughput_tokens_per_s is not None
    ]
    ends = dict.fromkeys(f"{round(each, 1):,g}" for each in (min(tokens), max(tokens))) if tokens else {}
    return [f"A sample has {' to '.join(ends)} tokens."] if ends else []


def _mfu_cell(row: Row) -> str:
    of_sheet = f" ({plain_share(row.mfu_datasheet)})" if row.mfu_datasheet is not None else ""
    return f"{known(row.mfu, plain_share)}{of_sheet}"


def speedup_cell(scaling: Scaling, words: Callable[[Estimate], str] = times) -> str:
    """The speed-up in ``words``, over how many devices where it is not one; of the baseline itself 1."""
    if scaling.speedup is None or scaling.baseline is None:
        return ""
    if scaling.is_baseline:
        return "1"
    size = scaling.baseline.world_size
    return words(scaling.speedup) + ("" if size == 1 else f" over {size}")


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


def overheads_table(results: StudyResults) -> Table:
    """What is lost and its communication, and Amdahl's f, of every row on several devices."""
    is_strong = results.study.scaling.mode == "strong"
    rows = [
        (row.label, waterfall)
        for row in scaling_rows(results)
        if row.point.world_size > 1
        if (waterfall := results.waterfalls[row.point.record.trial_id]) is not None
    ]
    caption = "Lost: all that more devices add (often called T_comm); communication: what no compute hides"
    caption += "; f: Amdahl's serial fraction (Karp and Flatt 1990), with one fixed total batch at most 1/f. "
    caption += f"{_n_words(scaling_rows(results))}."
    if not is_strong and results.outlook is not None:
        caption = " ".join([caption, *(f"{sentence(each)}." for each in returns_words(results.outlook))])
    one = "T(1)/n" if is_strong else "T(1)"  # one device does the samples of all in n steps, or in one

    def column(heading: str, of: Callable[[Waterfall], Estimate | None], words: Cell) -> _OverheadColumn:
        return Column(heading, lambda row: known(of(row[1]), words), right=True)

    columns: list[_OverheadColumn] = [
        Column("devices", lambda row: str(row[1].world_size), right=True),
        Column("setting", lambda row: row[0]),
        column(f"lost = T(n) - {one}, ms", lambda each: each.t_comm_s, milliseconds),
        column("lost / T(n)", lambda each: each.t_comm_fraction, percent),
        column("of it communication, ms", lambda each: each.parts.exposed_communication, milliseconds),
        column("communication / T(n)", lambda each: each.communication_fraction, percent),
        column("Amdahl's f", lambda each: each.serial_fraction, serial_fraction_words),
        column("1/f", lambda each: each.serial_fraction, _limit),
    ]
    return make_table("Overhead by world size", caption, columns, rows)


def _limit(f: Estimate) -> str:
    """The most that Amdahl's law allows."""
    return f"{figures(1 / f.value)}x" if 0 < f.value <= 1 else NONE


Cell = Callable[[Estimate], str]
_OverheadColumn = Column[tuple[str, Waterfall]]  # of a setting


@dataclass(frozen=True)
class PlottedSetting:
    """A setting over its numbers of devices: throughput in samples/s, and speed-up where it is known."""

    label: str
    world_sizes: tuple[int, ...]
    throughput: tuple[Estimate, ...]
    speedup: tuple[Estimate | None, ...]  # over one device
    main: int  # the number of devices at which settings are compared
    device: str  # cpu, cuda

    @property
    def main_speedup(self) -> Estimate | None:
        return self.speedup[self.world_sizes.index(self.main)]

    @property
    def ideal(self) -> tuple[float, ...]:
        """The throughput, were each device as fast as one of the fewest."""
        per_device = self.throughput[0].value / self.world_sizes[0]
        return tuple(per_device * size for size in self.world_sizes)

    @property
    def is_slower(self) -> bool:
        """Slower than one, with the whole interval."""
        return self.main_speedup is not None and self.main_speedup.high < 1

    @property
    def is_faster(self) -> bool:
        return self.main_speedup is not None and self.main_speedup.low > 1


@dataclass(frozen=True)
class ScalingPlot:
    """Settings over the devices, and what is seen of them in a sentence."""

    title: str
    settings: tuple[PlottedSetting, ...]

    @property
    def world_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({size for each in self.settings for size in each.world_sizes}))


def scaling_plot(results: StudyResults, name: str = "") -> ScalingPlot | None:
    """The settings that were measured on several numbers of devices; None where there are none.

    Without workers that shared cores. ``name``: the results', of several: the default's alone.
    """
    drawable = [
        each
        for each in (results.settings[:1] if name else results.settings)
        if len(each.points) > 1 and not each.main.config.oversubscribed
    ]
    if not drawable:
        return None
    labels = short_labels(results.study, [each.main.config for each in drawable])
    settings = tuple(
        _plotted(each, f"{name}, {devices_of(each.main.config)}" if name else words)
        for each, words in zip(drawable, labels, strict=True)
    )
    return ScalingPlot(seen_words(settings), settings)


def _plotted(setting: ShownSetting, words: str) -> PlottedSetting:
    def over_one(scaling: Scaling) -> Estimate | None:
        return scaling.speedup if scaling.baseline and scaling.baseline.world_size == 1 else None

    points = [point for point in setting.points if not point.config.oversubscribed]
    return PlottedSetting(
        words,
        tuple(point.world_size for point in points),
        tuple(point.scaling.throughput_samples_per_s for point in points),
        tuple(over_one(point.scaling) for point in points),
        setting.main.world_size,
        setting.main.config.device,
    )


def seen_words(settings: Sequence[PlottedSetting]) -> str:
    """Where more devices are faster than one, and where slower."""
    sizes = {each.main for each in settings}
    many = devices_words(max(sizes), settings[0].device)
    if len(sizes) > 1 or sizes == {1} or all(each.main_speedup is None for each in settings):
        return "Throughput over the devices"
    speedup = settings[0].main_speedup
    if len(settings) == 1 and speedup is not None:
        return f"{many} train {speedup.value:.2f} times as fast as one"
    faster = _at("faster", [each for each in settings if each.is_faster], settings)
    slower = _at("slower", [each for each in settings if each.is_slower], settings)
    return f"{many} are {' and '.join([*faster, *slower]) or 'not shown to be faster than one'}"


def _at(word: str, which: Sequence[PlottedSetting], settings: Sequence[PlottedSetting]) -> list[str]:
    """That ``which`` of the settings are faster, or slower, than one device; nothing of none."""
    where = f"at {' and '.join(each.label for each in which)}"
    if len(which) == len(settings):
        where = "at every setting shown"
    elif len(which) > MOST_NAMED:
        where = f"in {len(which)} of {len(settings)} settings"
    return [f"{word} than one {where}"] if which else []


def draw_scaling(plot: ScalingPlot) -> Figure:
    """Bars where there are two numbers of devices, else lines."""
    return _draw_bars(plot) if len(plot.world_sizes) <= 2 else _draw_curves(plot)


def _draw_bars(plot: ScalingPlot) -> Figure:
    """A row for each setting: the speed-up before its ideal, and the throughput of one device and of more."""
    from matplotlib.ticker import MaxNLocator

    figure, (left, right) = make_figure(WIDTH_IN, 1.5 + 0.62 * len(plot.settings), columns=2)
    for place, each in enumerate(plot.settings):
        color = SLOWER if each.is_slower else COLORS[0] if each.is_faster else UNSURE
        for index, (size, rate) in enumerate(zip(each.world_sizes, each.throughput, strict=True)):
            at = place + 0.4 * (index - (len(each.world_sizes) - 1) / 2)
            _draw_bar(right, at, rate, color if index else ONE_DEVICE, 0.36)
            _write_after(right, at, rate.high, f"{size}")
        speedup = each.main_speedup
        if speedup is not None:
            left.barh(place, each.main, height=0.6, color=IDEAL)
            _draw_bar(left, place, speedup, color, 0.6)
            _write_after(left, place, max(each.main, speedup.high), f"{speedup.value:.2f}x", weight="bold")
    rates = shown_ends(rate for each in plot.settings for rate in each.throughput)
    ratios = shown_ends(each.main_speedup for each in plot.settings if each.main_speedup is not None)
    for axes, highest in ((left, max([*plot.world_sizes, *ratios])), (right, max(rates))):
        axes.set_xlim(0, highest * 1.25)
        axes.set_ylim(len(plot.settings) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    left.set_yticks(range(len(plot.settings)), [label_lines(each.label, 24) for each in plot.settings])
    left.axvline(1, color="black", linewidth=0.9)
    left.set_xlabel("speed-up over one device (pale: ideal)")
    right.set_yticks([])
    with_separators(right.xaxis)
    right.set_xlabel("throughput (samples/s), by devices")
    write_title(figure, in_lines(plot.title, 80))
    return figure


def _draw_bar(axes: Axes, at: float, value: Estimate, color: str, height: float) -> None:
    """A bar to the right, with its interval."""
    axes.barh(at, value.value, height=height, color=color)
    error = [[value.value - value.low], [value.high - value.value]]
    axes.errorbar(value.value, at, xerr=error, color="black", capsize=3, linewidth=1.0, fmt="none")


def _write_after(axes: Axes, at: float, end: float, words: str, weight: str = "normal") -> None:
    axes.annotate(words, (end, at), xytext=(4, 0), textcoords="offset points", va="center",
                  fontsize=9, fontweight=weight)  # fmt: skip


def _line(setting: PlottedSetting, values: Sequence[Estimate | None]) -> Line:
    return make_line(setting.label, list(zip(setting.world_sizes, values, strict=True)))


def _draw_curves(plot: ScalingPlot) -> Figure:
    """Throughput and speed-up over the devices, side by side, with the ideal in grey."""
    throughput = [_line(each, each.throughput) for each in plot.settings]
    speedup = [_line(each, each.speedup) for each in plot.settings]
    figure, (left, right) = make_figure(9.0, 3.8, columns=2)
    for each in plot.settings:
        left.plot(each.world_sizes, each.ideal, color=GREY, linestyle=(0, (1, 2)), linewidth=1.0)
    sizes = plot.world_sizes
    right.plot(sizes, sizes, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    right.annotate("ideal", (sizes[-1], sizes[-1]), xytext=(-4, 2), textcoords="offset points",
                   ha="right", va="bottom", color=GREY, fontsize=9)  # fmt: skip
    ideal = [rate for each in plot.settings for rate in each.ideal]
    with_separators(left.yaxis)
    for axes, lines, highest, words in (
        (left, throughput, max(ideal), "throughput (samples/s)"),
        (right, speedup, sizes[-1], "speed-up over one device"),
    ):
        draw_lines(axes, lines)
        ends = shown_ends(point.estimate for line in lines for point in line.points)
        axes.set_ylim(0, 1.05 * max([highest, *ends]))
        log2_axis(axes, sizes)
        axes.set_xlabel("devices")
        axes.set_ylabel(words)
    write_title(figure, in_lines(plot.title, 100))
    legend_below(figure, left)
    return figure
