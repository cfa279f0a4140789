"""Where a step's time goes: parts, phases, and the plot of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raybench.analysis.labels import devices_words, short_labels
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
from raybench.report.plot import in_lines, legend_below, make_figure, write_title
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
    "undivided": "not divided",
}
REST = "not attributed"  # of a bar: what is not surely above 0, and what was not taken apart
IN_LEGEND = {
    "ideal": "computing (one device)",
    "contention": "contention (slower side by side)",
    "skew": "skew (waiting for the slowest)",
    "communication": "communication (not hidden)",
}
LEAST_WRITTEN = 0.035  # of a bar: less has no room for its number


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
            f"One step on {devices_words(waterfall.world_size)} ({results.headline_label}), n rounds. "
            "Communication: transfers that no compute hides. A part below 0 was measured so.",
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
    caption = "T(n): a step on n devices; n counts rounds."
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
            "all that more devices add to a step: contention, wrapper, skew, communication",
        ),
        ("T_comm / T(n)", waterfall.t_comm_fraction, share_of_step, "the same as a share of the step"),
        ("all-reduces alone, ms", waterfall.replay_s, milliseconds, "with no compute at the time"),
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
            "first all-reduce's start to last one's end, less computing; waiting for others is in it",
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
        f"The {phases.samples:,.0f} samples of one step on {many} ({results.headline_label}); one device "
        "takes as many steps for them as there are devices. Backward is without transfers. "
    )
    if phases.is_gain is None:
        caption += "There is no certain gain to share."
    else:
        caption += "Shares add up to 100%."
    if epoch_samples:
        caption += f" An epoch has {epoch_samples:,.0f} samples, by mean steps."
        if results.restart_s is not None:
            caption += f" It also has a restart of the loader, {restart_words(results.restart_s)} on {many}."
    rows = [*phases.rows, phases.total, phases.backward_with_synchronization]
    return make_table("Phases", caption, columns, rows)


PART_LOOKS = {  # colour and hatch: bars are read without colours too
    "ideal": ("#9aa4b0", ""),
    "small batch": ("#F0E442", "..."),
    "contention": ("#E69F00", "///"),
    "DDP wrapper": ("#009E73", "xxx"),
    "skew": ("#CC79A7", "\\\\\\"),
    "communication": ("#56B4E9", "---"),
    REST: ("#f1f1f1", ""),
}


@dataclass(frozen=True)
class Bar:
    """One setting's step in shares of it: what computing needs, what is certainly lost, the rest if any."""

    label: str
    step_time_s: float
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class WaterfallPlot:
    """Steps of several settings, and what is seen in a sentence."""

    title: str
    bars: tuple[Bar, ...]


def waterfall_plot(results: StudyResults, name: str = "") -> WaterfallPlot | None:
    """The steps of the settings shown; None on one device. ``name`` is the results', of several."""
    shown = [
        (each.main.config, each.waterfall)
        for each in (results.settings[:1] if name else results.settings)
        if each.waterfall is not None
        and each.waterfall.world_size > 1
        and not each.main.config.oversubscribed
    ]
    if not shown:
        return None
    labels = short_labels(results.study, [config for config, _ in shown])
    bars = tuple(
        Bar(
            f"{name}, {devices_words(found.world_size)}" if name else words,
            found.step_time_s.value,
            tuple(_shares(found)),
        )
        for words, (_, found) in zip(labels, shown, strict=True)
    )
    which = f", {bars[0].label}" if len(bars) > 1 else ""
    return WaterfallPlot(_seen_words(bars[0], f"{devices_words(shown[0][1].world_size)}{which}"), bars)


def _shares(waterfall: Waterfall) -> Iterator[tuple[str, float]]:
    """Parts that are not certainly above 0 are one: what is left, nothing where that is below 0."""
    left = 1.0
    for name, share in shares_of_step(waterfall).items():
        if name == PART_WORDS["ideal"] or (share.low > 0 and name != PART_WORDS["undivided"]):
            yield name, share.value
            left -= share.value
    if left > 0:
        yield REST, left


def _seen_words(bar: Bar, many: str) -> str:
    shares = dict(bar.shares)
    ideal = shares.pop(PART_WORDS["ideal"], 0.0)
    lost = {name: share for name, share in shares.items() if name != REST}
    words = f"{many}: {ideal:.0%} of a step is what computing needs"
    if not lost:
        return words
    most = max(lost, key=lambda name: lost[name])
    return f"{words}, {lost[most]:.0%} {most}"


def draw_waterfall(plot: WaterfallPlot) -> Figure:
    """A bar for each setting, in shares of its step."""
    figure, (axes,) = make_figure(7.5, 2.1 + 0.45 * max(len(plot.bars), 2))
    seen = dict[str, None]()
    for row, bar in enumerate(plot.bars):
        left = 0.0
        for name, share in bar.shares:
            color, hatch = PART_LOOKS[name]
            axes.barh(
                row, 100 * share, left=100 * left, height=0.62, color=color, hatch=hatch,
                edgecolor="#444444", linewidth=0.6, label=None if name in seen else IN_LEGEND.get(name, name),
            )  # fmt: skip
            if share >= LEAST_WRITTEN:
                axes.text(
                    100 * (left + share / 2), row, f"{share:.0%}", ha="center", va="center", fontsize=9,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85},
                )  # fmt: skip
            seen[name] = None
            left += share
    labels = [f"{in_lines(bar.label, 30)}\n{duration_words(bar.step_time_s)}" for bar in plot.bars]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.axvline(100, color="#444444", linewidth=0.8)
    furthest = max(1.0, *(sum(share for _, share in bar.shares) for bar in plot.bars))
    axes.set_xlim(0, 100 * furthest)
    beyond = "; beyond 100: another part was measured below 0" if furthest > 1.005 else ""
    axes.set_xlabel(f"share of the step (%){beyond}")
    write_title(figure, in_lines(plot.title, 80))
    legend_below(figure, axes)
    return figure


def restart_words(estimate: Estimate) -> str:
    """What a restart of the loader costs an epoch, a time in s, with its unit."""
    return over_few(estimate, lambda each: timing(each.not_negative), duration_words(estimate.value))
