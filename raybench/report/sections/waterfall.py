"""Where a step's time goes: parts, phases, and the plot of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from raybench.analysis.labels import devices_of
from raybench.analysis.phases import PhaseRow
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.waterfall import Parts, Waterfall
from raybench.records.requests import Variant
from raybench.report.format import (
    duration_words,
    gigabytes_per_s,
    interval,
    milliseconds,
    percent,
    plain_share,
    range_words,
    times,
)
from raybench.report.plot import label_lines, legend_below, make_figure, write_title
from raybench.report.sections.scaling import Plotted
from raybench.report.table import Column, Table, make_table, numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PART_WORDS = {part.name: part.name.replace("_", " ") for part in fields(Parts)} | {
    "exposed_communication": "communication",
    "undivided": "not divided",
}
COMPUTE = "compute"  # of all devices, where one device's step is unknown and nothing takes it apart
UNMEASURED: dict[Variant, str] = {
    "plain": "one device alone",
    "base": "one device at the global batch",
    "concurrent": "all devices without the wrapper",
    "local": "steps without transfers",
}
OWN_COLLECTIVES = (
    "Communication: of DDP's gradients. The script has collectives of its own in every step, in which ranks "
    "wait for one another, so that skew is not a part of its own."
)
REST = "not attributed"  # of a bar: what is not surely above 0, and what was not taken apart
WHOLE = 0.995  # of a step: what is lost is no percent
LEAST_WRITTEN = 3.5  # percent of a bar: less has no room for its number


def shares_of_step(waterfall: Waterfall) -> dict[str, Estimate]:
    """The parts that were measured, by their names in words, the ideal one among them where it is known."""
    step_s = waterfall.step_time_s.value
    return {PART_WORDS[name]: part.scaled(1 / step_s) for name, part in waterfall.parts.present().items()}


def waterfall_table(results: StudyResults) -> Table:
    """The parts of a step of the headline trial; empty on one device."""
    waterfall, title = results.waterfall, "Where the time goes"
    if waterfall is None or waterfall.world_size == 1:
        return Table(title)
    step_s = waterfall.step_time_s
    columns: list[Column[tuple[str, Estimate]]] = [
        Column("part", lambda row: row[0]),
        numbers("ms", lambda row: row[1], milliseconds),
        numbers("share", lambda row: row[1].value / step_s.value, plain_share),
        numbers("n", lambda row: row[1].n),
    ]
    parts = [(PART_WORDS[name], part) for name, part in waterfall.parts.present().items()]
    first = "Ideal: what one device needs for its share of the samples"
    if waterfall.parts.ideal is None and waterfall.compute_s is not None:
        who = "one device alone" if waterfall.parts.contention else "all devices, with nothing sent"
        parts, first = [(COMPUTE, waterfall.compute_s), *parts], f"Compute: {who}"
    beside = ("transfers alone", waterfall.replay_s), ("hidden by overlap", waterfall.hidden_communication_s)
    alone = [(name, value) for name, value in beside if value is not None]
    rate, ratio = waterfall.bus_bandwidth_bytes_per_s, waterfall.compute_to_communication
    words = [
        f"One step on {results.devices(waterfall.world_size)} ({results.headline_label}), n rounds. {first}; "
        "the other parts are differences, also below 0.",
        f"Bus bandwidth of transfers alone: {gigabytes_per_s(rate)} GB/s." if rate else "",
        f"Compute over transfers alone: {interval(ratio)}." if ratio else "",
        *(
            f"Not measured: {UNMEASURED[variant]}{f' ({why})' if why else ''}; the next row has its part."
            for variant, why in waterfall.missing.items()
        ),
        OWN_COLLECTIVES if waterfall.local_sends else "",
    ]
    return make_table(title, " ".join(filter(None, words)), columns, [*parts, ("step time", step_s), *alone])


def phases_table(results: StudyResults) -> Table:
    """Phases of the headline trial, and one device's; of an epoch too where its samples are known."""
    phases = results.phases
    if phases is None:
        return Table("Phases")
    many = results.devices(phases.world_size)
    columns: list[Column[PhaseRow]] = [
        Column("phase", lambda row: row.name),
        numbers(f"one {results.device_word}, ms", lambda row: row.one_s, milliseconds),
        numbers(f"{many}, ms", lambda row: row.many_s, milliseconds),
        numbers("share of step", lambda row: row.share_of_step, plain_share),
        numbers("speed-up", lambda row: row.speedup, times),
        numbers("share of the gain", lambda row: row.share_of_gain, percent),
    ]
    caption = (
        f"A step of {phases.samples:,.0f} samples on {many} ({results.headline_label}), and what one device "
        f"takes for 1/{phases.world_size} of them. Speed-up: of samples/s."
    )
    if phases.total.share_of_gain:
        caption += f" Gain: the time of {phases.world_size} steps on one, less that of a step on {many}."
    if results.epoch_samples and results.headline:
        several = results.scaling(results.headline)
        alone = several.one_device or several
        # a total is made of the mean step, not of the typical one
        steps = results.epoch_samples / phases.samples * several.mean_step_s.value / several.step_time_s.value
        of_one = results.epoch_samples / phases.samples * phases.world_size
        of_one *= alone.mean_step_s.value / alone.step_time_s.value
        columns += [
            numbers(
                f"one {results.device_word}, s an epoch",
                lambda row: row.one_s and row.one_s.scaled(of_one),
                interval,
            ),
            numbers(f"{many}, s an epoch", lambda row: row.many_s and row.many_s.scaled(steps), interval),
        ]
        caption += f" An epoch: {results.epoch_samples:,.0f} samples."
    rows = [*phases.rows, phases.total, phases.backward_with_synchronization]
    return make_table("Phases", caption, columns, rows)


PART_LOOKS = {  # colour, hatch and legend: bars are read without colours too
    "ideal": ("#9aa4b0", "", "computing (one device)"),
    COMPUTE: ("#9aa4b0", "", "computing (all devices)"),
    "small batch": ("#F0E442", "...", "small batch"),
    "contention": ("#E69F00", "///", "contention (slower side by side)"),
    "wrapper": ("#009E73", "xxx", "wrapper"),
    "skew": ("#CC79A7", "\\\\\\", "skew (waiting for the slowest)"),
    "communication": ("#56B4E9", "---", "communication (not hidden)"),
    REST: ("#f1f1f1", "", REST),
}


def shares_drawn(waterfall: Waterfall) -> dict[str, float]:
    """A bar, in shares of its step: what computing needs, what is certainly lost, and the rest if any.

    Parts that are not certainly above 0 are one: what is left, nothing where that is below 0.
    """
    sure = {
        name: share.value
        for name, share in shares_of_step(waterfall).items()
        if name == PART_WORDS["ideal"] or (share.low > 0 and name != PART_WORDS["undivided"])
    }
    if waterfall.parts.ideal is None and waterfall.compute_s is not None:
        sure = {COMPUTE: waterfall.compute_s.value / waterfall.step_time_s.value} | sure
    left = 1.0 - sum(sure.values())
    return sure | {REST: left} if left > 0 else sure


def seen_words(bars: Sequence[Mapping[str, float]], where: str) -> str:
    """What holds of every bar, which begins with what computing needs; of one alone its largest loss too."""
    computing = [next(iter(shares.values())) for shares in bars]
    if min(computing) > WHOLE:
        return f"Computing takes the whole step {where}"
    words = f"Computing takes {range_words(computing, '{:.0%}'.format)} of a step {where}"
    lost = {name: share for name, share in [*bars[0].items()][1:] if name != REST}
    if len(bars) > 1 or not lost:
        return f"{words}, the rest is lost"
    most = max(lost, key=lambda name: lost[name])
    return f"{words}, {most} {lost[most]:.0%}"


def draw_waterfall(settings: Sequence[Plotted]) -> Figure | None:
    """A bar for each setting on several devices, in shares of its step; None without one."""
    found = [
        (name, each.waterfall, devices_of(each.main.config))
        for name, each in settings
        if each.waterfall is not None and each.waterfall.world_size > 1
    ]
    if not found:
        return None
    figure, (axes,) = make_figure(7.5, 2.1 + 0.45 * max(len(found), 2))
    bars = [shares_drawn(waterfall) for _, waterfall, _ in found]
    left = np.zeros(len(bars))
    for name, (color, hatch, label) in PART_LOOKS.items():
        shares = np.array([100 * bar.get(name, 0.0) for bar in bars])
        if not shares.any():
            continue
        part = axes.barh(
            range(len(bars)), shares, left=left, height=0.62, color=color, hatch=hatch,
            edgecolor="#444444", linewidth=0.6, label=label,
        )  # fmt: skip
        axes.bar_label(
            part, [f"{share:.0f}%" if share >= LEAST_WRITTEN else "" for share in shares],
            label_type="center", fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85},
        )  # fmt: skip
        left += shares
    labels = [f"{label_lines(name, 30)}\n{duration_words(each.step_time_s.value)}" for name, each, _ in found]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.axvline(100, color="#444444", linewidth=0.8)
    furthest = max(100.0, *left)
    axes.set_xlim(0, furthest + (2 if furthest > 100 else 0))
    beyond = "; beyond 100: another part was measured below 0" if furthest > 100.5 else ""
    axes.set_xlabel(f"share of the step (%){beyond}")
    sizes = dict.fromkeys(many for _, _, many in found)
    where = f"on {next(iter(sizes))}" if len(sizes) == 1 else "on the most devices"
    write_title(figure, seen_words(bars, where))
    legend_below(figure, axes)
    return figure
