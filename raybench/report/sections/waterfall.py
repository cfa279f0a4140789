"""Where a step's time goes: parts, phases, and the plot of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raybench.analysis.labels import devices_words
from raybench.analysis.phases import PhaseRow
from raybench.analysis.results import StudyResults
from raybench.analysis.scaling import one_device
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.waterfall import Waterfall
from raybench.report.format import (
    count,
    duration_words,
    interval,
    lost_milliseconds,
    milliseconds,
    plain_percent,
    plain_share,
    serial_fraction_words,
    share_of_step,
    times,
)
from raybench.report.plot import (
    REACH,
    draw_bar,
    draw_whisker,
    headline_title,
    in_lines,
    make_figure,
    write_note,
    write_title,
)
from raybench.report.table import Column, Table, empty_table, known, make_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from raybench.report.format import over_few, timing

PART_WORDS = {
    "ideal": "ideal",
    "small_batch": "small batch",
    "contention": "contention",
    "wrapper": "DDP wrapper",
    "skew": "skew",
    "exposed_communication": "communication",
    "undivided": "not taken apart",
}


def shares_of_step(waterfall: Waterfall) -> dict[str, Estimate]:
    """The parts that were measured, by their names in words, the ideal one among them."""
    step_s = waterfall.step_time_s.value
    return {
        PART_WORDS[name]: part.scaled(1 / step_s).as_share for name, part in waterfall.parts.present().items()
    }


def certain(shares: dict[str, Estimate], least: float) -> list[tuple[str, Estimate]]:
    """Those of at least ``least`` of the step whose interval lies above 0, the largest first."""
    known = [(name, share) for name, share in shares.items() if share.low > 0 and share.value >= least]
    return sorted(known, key=lambda item: -item[1].value)


@dataclass(frozen=True)
class _Part:
    """A part of a step, or the whole of it."""

    name: str
    time_s: Estimate
    share: str


_PART_COLUMNS: list[Column[_Part]] = [
    Column("part", lambda part: part.name),
    Column("ms", lambda part: lost_milliseconds(part.time_s), right=True),
    Column("share", lambda part: part.share, right=True),
    Column("n", lambda part: count(part.time_s), right=True),
]


def waterfall_table(results: StudyResults) -> Table:
    """The parts of a step of the headline trial; empty on one device."""
    waterfall = results.waterfall
    if results.headline is None or waterfall is None or waterfall.world_size == 1:
        return empty_table("Where the time goes")
    caption = " ".join(
        [
            f"One step on {devices_words(waterfall.world_size)} ({results.headline_label}): mean with 95% "
            "interval over n rounds. The parts add up to the step time; what is lost is no less than 0, "
            "a part below it was measured so. Communication: transfers that no compute hides.",
            *(f"Note: {note}." for note in waterfall.notes),
        ]
    )
    return make_table("Where the time goes", caption, _PART_COLUMNS, _parts(waterfall))


def _parts(waterfall: Waterfall) -> Iterator[_Part]:
    step_s = waterfall.step_time_s
    for name, part in waterfall.parts.present().items():
        yield _Part(PART_WORDS[name], part, plain_share(part.value / step_s.value))
    yield _Part("step time", step_s, "100%")


@dataclass(frozen=True)
class _Quantity:
    """One thing that is known of the communication."""

    name: str
    value: str
    n: str
    meaning: str


_QUANTITY_COLUMNS: list[Column[_Quantity]] = [
    Column("quantity", lambda quantity: quantity.name),
    Column("value", lambda quantity: quantity.value, right=True),
    Column("n", lambda quantity: quantity.n, right=True),
    Column("what it is", lambda quantity: quantity.meaning),
]


def communication_table(results: StudyResults) -> Table:
    """What else the headline trial says of its communication; empty where it measured none."""
    waterfall, title = results.waterfall, "Other measures of communication"
    if waterfall is None or waterfall.world_size == 1:
        return empty_table(title)
    caption = "Mean with 95% interval over n rounds. T(n): a step on n devices."
    return make_table(title, caption, _QUANTITY_COLUMNS, _quantities(waterfall))


def _quantities(waterfall: Waterfall) -> Iterator[_Quantity]:
    bandwidth = waterfall.bus_bandwidth_bytes_per_s
    estimates = (
        (
            "communication / T(n)",
            waterfall.communication_fraction,
            share_of_step,
            "the part above: transfers that no compute hides",
        ),
        (
            "T_comm = T(n) - T(1), ms",
            waterfall.t_comm_s,
            lost_milliseconds,
            "all that more devices add to a step: contention, wrapper and skew are in it",
        ),
        ("T_comm / T(n)", waterfall.t_comm_fraction, share_of_step, "the same as a share of the step"),
        ("all-reduces alone, ms", waterfall.replay_s, milliseconds, "with no compute beside them"),
        (
            "hidden by overlap, ms",
            waterfall.hidden_communication_s,
            milliseconds,
            "all-reduces alone less communication; negative: what interference adds",
        ),
        (
            "Amdahl's serial fraction f",
            waterfall.serial_fraction,
            serial_fraction_words,
            "that the measured speed-up asks for; no part of a step",
        ),
        (
            "compute / all-reduces alone",
            waterfall.compute_to_communication,
            interval,
            "steps of all devices at once over all-reduces alone",
        ),
        (
            "bus bandwidth, GB/s",
            bandwidth.scaled(1e-9) if bandwidth else None,
            interval,
            "that each link carries in all-reduces alone, by the rule of nccl-tests",
        ),
    )
    for name, estimate, words, meaning in estimates:
        if estimate is not None:
            yield _Quantity(name, words(estimate), count(estimate), meaning)
    logged = waterfall.ddp_logger
    if logged:
        difference = (
            f"{logged.communication_s * 1e3:.2f} - {logged.overlap_s * 1e3:.2f} = "
            f"{logged.exposed_s * 1e3:.2f}"
        )
        yield _Quantity(
            "DDP's own logger, ms",
            difference,
            "few",
            "from the first all-reduce's start to the last one's end, less the computing beside it, in few "
            "steps: waiting for slower devices is in it, so it may be far from communication, which is a "
            "difference of two steps",
        )


def phases_table(results: StudyResults) -> Table:
    """Phases of the headline trial beside one device's; per epoch too where its samples are known."""
    phases, epoch_samples = results.phases, results.epoch_samples
    if phases is None:
        return empty_table("Phases")
    many = devices_words(phases.world_size)
    gain = "share of the loss" if phases.is_gain is False else "share of the gain"
    columns: list[Column[PhaseRow]] = [
        Column("phase", lambda row: row.name),
        Column("one device, ms", lambda row: known(row.one_s, lost_milliseconds), right=True),
        Column(f"{many}, ms", lambda row: known(row.many_s, lost_milliseconds), right=True),
        Column("speed-up", lambda row: known(row.speedup, times), right=True),
        Column(gain, lambda row: known(row.share_of_gain, plain_percent), right=True),
    ]
    if epoch_samples and results.headline:
        scaled = results.scaling(results.headline)
        one = one_device(results.headline, scaled) or scaled
        of_one, of_many = (each.mean_step_s.value / each.step_time_s.value for each in (one, scaled))

        def an_epoch(step_s: Estimate, ratio: float) -> str:
            return interval(step_s.scaled(ratio * epoch_samples / phases.samples).not_negative)

        columns += [
            Column(
                "one device, s an epoch",
                lambda row: known(row.one_s, lambda step_s: an_epoch(step_s, of_one)),
                right=True,
            ),
            Column(
                f"{many}, s an epoch",
                lambda row: known(row.many_s, lambda step_s: an_epoch(step_s, of_many)),
                right=True,
            ),
        ]
    caption = (
        f"For the {phases.samples:,.0f} samples of one step on {many} ({results.headline_label}), one device "
        "alone beside all of them. Phases are timed in blocks of their own: their shares are taken, the "
        "levels are those of the rounds. Backward is without transfers; gradient synchronization is what "
        "nothing hides of them. "
    )
    if phases.is_gain is None:
        caption += "The speed-up is too near to 1, or not surely another: there is no gain to share."
    else:
        caption += "The shares add up to 100%; a negative one takes time back."
    if epoch_samples:
        caption += f" An epoch has {epoch_samples:,.0f} samples, by mean steps."
        if results.restart_s is not None:
            caption += f" It also has a restart of the loader, {restart_words(results.restart_s)} on {many}."
    rows = [*phases.rows, phases.total, phases.backward_with_synchronization]
    return make_table("Phases", caption, columns, rows)


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


def restart_words(estimate: Estimate) -> str:
    """What a restart of the loader costs an epoch, a time in s, with its unit."""
    return over_few(estimate, lambda each: timing(each.not_negative), duration_words(estimate.value))
