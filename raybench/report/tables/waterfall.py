"""Where the time of the headline's step goes: its parts, and what else is known of its communication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.waterfall import Waterfall
from raybench.report.format import (
    PART_WORDS,
    count,
    interval,
    lost_milliseconds,
    milliseconds,
    plain_share,
    serial_fraction_words,
    share_of_step,
)
from raybench.report.tables.base import Column, Table, empty_table, make_table


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
