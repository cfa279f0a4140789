"""How throughput grows with devices and batch: the table and its plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from raybench.analysis.labels import devices_of, label, short_labels
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
    range_words,
    sentence,
    times,
)
from raybench.report.plot import (
    COLORS,
    GREY,
    SEPARATED,
    Line,
    draw_lines,
    label_lines,
    legend_below,
    log2_axis,
    make_figure,
    make_line,
    shown_ends,
    write_title,
)
from raybench.report.prediction import returns_words
from raybench.report.sections.trials import mark
from raybench.report.table import NONE, Column, Table, known, make_table, numbers
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure

MFU_WORDS = "MFU: of the peak of large matrix products (of the data sheet's)."
STATUS_WORDS = (
    f"Excellent: {EXCELLENT:.0%} efficiency or more; good: {GOOD:.0%}; poor: less; negative: certainly "
    "slower than its baseline."
)
# bars of several devices by what is shown of them; of one, and of the ideal
BAR_COLORS = {"faster": COLORS[0], "slower": "#B5442E", "": "#8fb8d4"}
ONE_DEVICE, IDEAL = "#9aa4b0", "#e6e6e6"
WIDTH_IN = 7.5
MOST_NAMED = 2  # settings in a title


@dataclass(frozen=True)
class Row:
    """A setting on one number of devices."""

    results: str  # their name, where there are several
    label: str
    short: str  # by what differs among the rows
    point: SettingPoint
    mfu: float | None
    mfu_datasheet: float | None


def scaling_rows(results: StudyResults, name: str = "") -> list[Row]:
    """The settings shown, on each of their numbers of devices; one device of equal settings once."""
    mfus = {each.trial_id: (each.mfu, each.mfu_datasheet) for each in results.summaries}
    points = [point for setting in results.settings for point in setting.points]
    shorter = short_labels(results.study, [point.config for point in points])
    rows = dict[tuple[str, int], Row]()
    for point, short in zip(points, shorter, strict=True):
        own = mfus.get(point.record.trial_id) if point.is_measured else None
        star = mark(point.config)
        words = label(results.study, point.config) + star
        rows.setdefault(
            (words, point.world_size), Row(name, words, short + star, point, *(own or (None, None)))
        )
    return list(rows.values())


DEVICES: Column[Row] = numbers("devices", lambda row: row.point.world_size)
SETTING = Column[Row]("setting", lambda row: row.label, stays=True)
SPEEDUP = Column[Row]("speed-up", lambda row: speedup_cell(row.point.scaling), right=True, stays=True)
EFFICIENCY: Column[Row] = numbers(
    "efficiency", lambda row: row.point.scaling.efficiency, percent, "", stays=True
)
STATUS = Column[Row]("status", lambda row: row.point.scaling.status or "no baseline")


def scaling_table(results: StudyResults) -> Table:
    """The settings to look at, on each of their numbers of devices."""
    rows = scaling_rows(results)
    has_mfu = any(row.mfu is not None for row in rows)
    mfu = Column[Row]("MFU", _mfu_cell, right=True)
    again = Column[Row]("in another run", lambda row: _again_cell(row.point.scaling), right=True)
    columns: list[Column[Row]] = [
        DEVICES,
        SETTING,
        numbers("step time, ms", lambda row: row.point.scaling.step_time_s, milliseconds),
        numbers("samples/s", lambda row: row.point.scaling.throughput_samples_per_s, interval),
        SPEEDUP,
        EFFICIENCY,
        mfu if has_mfu else again,  # the answer says where another run would be; MFU stands nowhere else
        STATUS,
    ]
    words = MFU_WORDS if has_mfu else "In another run: where efficiency would lie."
    first = f"95% intervals of this run, {_n_words(rows)}."
    caption = " ".join([first, words, *_tokens_words(rows), STATUS_WORDS])
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
    return f"{words}, {number_words(starts, 'start')} of processes" if max(starts, default=1) > 1 else words


def _tokens_words(rows: Sequence[Row]) -> list[str]:
    """By what to multiply samples/s for tokens/s, where samples have tokens."""
    scalings = [row.point.scaling for row in rows]
    tokens = [
        each.throughput_tokens_per_s.value / each.throughput_samples_per_s.value
        for each in scalings
        if each.throughput_tokens_per_s is not None
    ]
    words = range_words(tokens, lambda each: f"{round(each, 1):,g}")
    return [f"A sample has {words} tokens."] if words else []


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


def _again_cell(scaling: Scaling) -> str:
    """Between which efficiencies another run would be."""
    again = scaling.efficiency.again if scaling.efficiency is not None else None
    return f"{again[0]:.0%} to {again[1]:.0%}" if again is not None and not scaling.is_baseline else ""


def overheads_table(results: StudyResults) -> Table:
    """What is lost and its communication, of every row on several devices; where it is strong, Amdahl's f."""
    is_strong = results.study.scaling.mode == "strong"
    rows = [
        (row, waterfall)
        for row in scaling_rows(results)
        if row.point.world_size > 1
        if (waterfall := results.waterfalls[row.point.record.trial_id]) is not None
    ]
    caption = "Lost: all that more devices add (often called T_comm); communication: what no compute hides"
    limit = "; f: Amdahl's serial fraction (Karp and Flatt 1990), by which no speed-up exceeds 1/f"
    caption += f"{limit if is_strong else ''}. {_n_words([row for row, _ in rows])}."
    if not is_strong and results.outlook is not None:
        caption = " ".join([caption, *(f"{sentence(each)}." for each in returns_words(results.outlook))])
    one = "T(1)/n" if is_strong else "T(1)"  # one device does the samples of all in n steps, or in one
    columns: list[Column[tuple[Row, Waterfall]]] = [
        numbers("devices", lambda row: row[1].world_size),
        Column("setting", lambda row: row[0].label),
        numbers(f"lost = T(n) - {one}, ms", lambda row: row[1].t_comm_s, milliseconds),
        numbers("lost / T(n)", lambda row: row[1].t_comm_fraction, percent),
        numbers("of it communication, ms", lambda row: row[1].parts.exposed_communication, milliseconds),
        numbers("communication / T(n)", lambda row: row[1].communication_fraction, percent),
    ]
    if is_strong:
        columns += [
            numbers("Amdahl's f", lambda row: row[0].point.scaling.serial_fraction, _serial_fraction),
            numbers("1/f", lambda row: row[0].point.scaling.serial_fraction, _limit),
        ]
    return make_table("Overhead by world size", caption, columns, rows)


def _serial_fraction(f: Estimate) -> str:
    """A share, which a speed-up below 1 or above ideal has not."""
    return percent(f) if 0 <= f.value <= 1 else "not defined"


def _limit(f: Estimate) -> str:
    """The most that Amdahl's law allows."""
    return f"{figures(1 / f.value)}x" if 0 < f.value <= 1 else NONE


Plotted = tuple[str, ShownSetting]  # a setting by its label


def plotted_settings(results: StudyResults, name: str = "") -> list[Plotted]:
    """The settings that plots show, without workers that shared cores.

    ``name``: the results', of several: the default's alone.
    """
    every = results.settings[:1] if name else results.settings
    shown = [each for each in every if not each.main.config.oversubscribed]
    labels = short_labels(results.study, [each.main.config for each in shown])
    if name:
        labels = [f"{name}, {devices_of(each.main.config)}" for each in shown]
    able = [tuple(point for point in each.points if not point.config.oversubscribed) for each in shown]
    return [
        (words, replace(each, points=points)) for words, each, points in zip(labels, shown, able, strict=True)
    ]


def _verdict(setting: ShownSetting) -> str:
    """Faster or slower than one device, with the whole interval; empty where neither is shown."""
    speedup = setting.main.scaling.over_one
    if speedup is None or speedup.low <= 1 <= speedup.high:
        return ""
    return "faster" if speedup.low > 1 else "slower"


def seen_words(settings: Sequence[Plotted]) -> str:
    """Where more devices are faster than one, and where slower."""
    mains = [each.main for _, each in settings]
    speedups = [each.scaling.over_one for each in mains]
    sizes = {each.world_size for each in mains}
    if len(sizes) > 1 or sizes == {1} or not any(speedups):
        return "Throughput over the devices"
    many = devices_of(mains[0].config)
    if len(settings) == 1 and speedups[0] is not None:
        return f"{many} train {speedups[0].value:.2f} times as fast as one"
    said = []
    for verdict in ("faster", "slower"):
        which = [words for words, each in settings if _verdict(each) == verdict]
        where = f"at {' and '.join(which)}"
        if len(which) == len(settings):
            where = "at every setting shown"
        elif len(which) > MOST_NAMED:
            where = f"in {len(which)} of {len(settings)} settings"
        said += [f"{verdict} than one {where}"] if which else []
    return f"{many} are {' and '.join(said) or 'not shown to be faster than one'}"


def draw_scaling(settings: Sequence[Plotted]) -> Figure | None:
    """Bars where there are two numbers of devices, else lines; None without several numbers of devices."""
    drawable = [each for each in settings if len(each[1].points) > 1]
    sizes = sorted({point.world_size for _, each in drawable for point in each.points})
    if not drawable:
        return None
    return _draw_bars(drawable, sizes[-1]) if len(sizes) <= 2 else _draw_curves(drawable, sizes)


def _draw_bars(settings: Sequence[Plotted], most: int) -> Figure:
    """A row for each setting: the speed-up before its ideal, and the throughput of one device and of more."""
    from matplotlib.ticker import MaxNLocator

    figure, (left, right) = make_figure(WIDTH_IN, 1.5 + 0.62 * len(settings), columns=2)
    for place, (_, each) in enumerate(settings):
        color = BAR_COLORS[_verdict(each)]
        for index, point in enumerate(each.points):
            at = place + 0.4 * (index - (len(each.points) - 1) / 2)
            bar = _draw_bar(right, at, _rate(point), color if point.world_size > 1 else ONE_DEVICE, 0.36)
            right.bar_label(bar, [f"{point.world_size}"], padding=4, fontsize=9)
        size, speedup = each.main.world_size, each.main.scaling.over_one
        if speedup is not None:
            ideal = left.barh(place, size, height=0.6, color=IDEAL)
            bar = _draw_bar(left, place, speedup, color, 0.6)
            longer, words = ideal if size > speedup.high else bar, f"{speedup.value:.2f}x"
            left.bar_label(longer, [words], padding=4, fontsize=9, fontweight="bold")
    rates = shown_ends(_rate(point) for _, each in settings for point in each.points)
    ratios = shown_ends(filter(None, (each.main.scaling.over_one for _, each in settings)))
    for axes, highest in ((left, max([most, *ratios])), (right, max(rates))):
        axes.set_xlim(0, highest * 1.25)
        axes.set_ylim(len(settings) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    left.set_yticks(range(len(settings)), [label_lines(words, 24) for words, _ in settings])
    left.axvline(1, color="black", linewidth=0.9)
    left.set_xlabel("speed-up over one device (pale: ideal)")
    right.set_yticks([])
    right.xaxis.set_major_formatter(SEPARATED)
    right.set_xlabel("throughput (samples/s), by devices")
    write_title(figure, seen_words(settings))
    return figure


def _rate(point: SettingPoint) -> Estimate:
    return point.scaling.throughput_samples_per_s


def _draw_bar(axes: Axes, at: float, value: Estimate, color: str, height: float) -> BarContainer:
    """A bar to the right, with its interval."""
    error = [[value.value - value.low], [value.high - value.value]]
    return axes.barh(at, value.value, height=height, color=color, xerr=error, capsize=3)


def _draw_curves(settings: Sequence[Plotted], sizes: Sequence[int]) -> Figure:
    """Throughput and speed-up over the devices, side by side, with the ideal in grey."""

    def lines(of: Callable[[SettingPoint], Estimate | None]) -> list[Line]:
        return [
            make_line(words, [(each.world_size, of(each)) for each in found.points])
            for words, found in settings
        ]

    figure, (left, right) = make_figure(9.0, 3.8, columns=2)
    dotted: Any = {"color": GREY, "linestyle": (0, (1, 2)), "linewidth": 1.1}
    fastest = 0.0
    for _, each in settings:
        measured = [point.world_size for point in each.points]
        ideal = [_rate(each.points[0]).value * size / measured[0] for size in measured]
        left.plot(measured, ideal, **dotted)
        fastest = max(fastest, *ideal)
    right.plot(sizes, sizes, **dotted)
    right.annotate("ideal", (sizes[-1], sizes[-1]), xytext=(-4, 2), textcoords="offset points",
                   ha="right", va="bottom", color=GREY, fontsize=9)  # fmt: skip
    left.yaxis.set_major_formatter(SEPARATED)
    for axes, shown, highest, words in (
        (left, lines(_rate), fastest, "throughput (samples/s)"),
        (right, lines(lambda each: each.scaling.over_one), sizes[-1], "speed-up over one device"),
    ):
        ends = draw_lines(axes, shown)
        axes.set_ylim(0, 1.05 * max([highest, *ends]))
        log2_axis(axes, sizes)
        axes.set_xlabel("devices")
        axes.set_ylabel(words)
    write_title(figure, seen_words(settings))
    legend_below(figure, left)
    return figure
