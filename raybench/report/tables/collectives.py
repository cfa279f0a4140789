"""Messages of a sweep, the lines through them, and what was not measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from raybench.analysis.collectives.cores import FULL, HALF, LEAST_OWN, CoreUse
from raybench.analysis.collectives.link import HOLDS_WITHIN, Link
from raybench.analysis.collectives.messages import LeftOut, Message, SweptPlace
from raybench.analysis.collectives.results import SweepResults
from raybench.analysis.labels import devices_words
from raybench.records.record import TrialRecord
from raybench.report.format import (
    figures,
    gigabytes_per_s,
    relative_words,
    share,
    size_words,
    time_unit,
    timing,
)
from raybench.report.tables.base import NONE, Column, Table, empty_table, known, make_table
from raybench.spec.counted import counted
from raybench.spec.placement import placement_words
from raybench.spec.sweep import Collective

Row = TypeVar("Row")

BANDWIDTHS = (
    "Bandwidths are in GB/s (10^9 bytes/s), as nccl-tests defines them: the algorithm's is the message over "
    "its time, the bus's is that times 2(n-1)/n for all_reduce, (n-1)/n for reduce_scatter and all_gather, "
    "and 1 for broadcast, which compares with the rate of each device's link. The message is the larger of "
    "what goes in and what comes out."
)
DECIDED = (
    f"Decided by the cores: a rank keeps {share(HALF)} of a core busy (the two ends of a transfer work in "
    f"turn), or {share(FULL)} of a host's cores are busy, at least {share(LEAST_OWN)} by its ranks; a faster "
    f"link would hardly help. {NONE}: not told, as on GPUs."
)
LINES = (
    "time = latency + message / bandwidth, by least squares of the logarithms, so that every message counts "
    "alike; intervals at 95% from the residuals, or from the messages' own intervals where these are "
    f"wider. {NONE}: the messages do not tell it within a factor of two. The typical error is the median of "
    f"the residuals' sizes; messages that are off by more than {share(HOLDS_WITHIN)}, and whose interval "
    "does not reach the line, are named: there it does not hold."
)


def links_table(results: SweepResults) -> Table:
    """The line of every collective at every place."""
    columns = [
        Column[Link]("collective", lambda each: each.collective),
        *_place_columns(lambda each: each.place),
        Column[Link]("latency", lambda each: known(each.latency_s, timing), right=True),
        Column[Link](
            "bandwidth (GB/s)",
            lambda each: known(each.algorithm_bandwidth_bytes_per_s, gigabytes_per_s),
            right=True,
        ),
        Column[Link](
            "bus bandwidth (GB/s)",
            lambda each: known(each.bus_bandwidth_bytes_per_s, gigabytes_per_s),
            right=True,
        ),
        Column[Link]("typical error", lambda each: f"{each.typical_error:.0%}", right=True),
        Column[Link]("does not hold at", far_off),
    ]
    return make_table("Latency and bandwidth", LINES, columns, results.links)


def far_off(link: Link) -> str:
    """The messages for which the line does not hold: "64 KiB (-31%)"."""
    return ", ".join(
        f"{size_words(each.message_bytes)} ({each.relative:+.0%})" for each in link.does_not_hold
    )


def messages_table(results: SweepResults) -> Table:
    """Every message."""
    columns = [
        Column[Message]("collective", lambda each: each.collective),
        *_place_columns(lambda each: each.place),
        Column[Message]("message", lambda each: size_words(each.message_bytes), right=True),
        Column[Message]("time", lambda each: timing(each.time_s), right=True),
        Column[Message](
            "bandwidth (GB/s)", lambda each: gigabytes_per_s(each.algorithm_bandwidth_bytes_per_s), right=True
        ),
        Column[Message](
            "bus bandwidth (GB/s)", lambda each: gigabytes_per_s(each.bus_bandwidth_bytes_per_s), right=True
        ),
        Column[Message]("n", lambda each: str(each.time_s.n), right=True),
        Column[Message]("decided by", lambda each: known(each.cores, _decided_by)),
    ]
    caption = f"Times of the slowest rank, mean and 95% interval; n counts rounds. {BANDWIDTHS} {DECIDED}"
    return make_table("Messages", caption, columns, results.messages)


def left_out_table(results: SweepResults) -> Table:
    """What was not measured, and why."""
    columns = [
        Column[LeftOut]("collective", lambda each: each.what.collective),
        *_place_columns(lambda each: each.place),
        Column[LeftOut](
            "message", lambda each: known(each.what.message_bytes, size_words, "every size"), right=True
        ),
        Column[LeftOut]("why not", lambda each: f"{each.what.why}: {each.what.reason}"),
    ]
    return make_table("Not measured", "", columns, results.left_out)


def failed_parts_table(results: SweepResults) -> Table:
    """Parts of the rounds without numbers."""
    columns = [
        Column[TrialRecord]("devices", lambda record: str(record.request.config.world_size), right=True),
        Column[TrialRecord]("placement", lambda record: placement_words(record.request.config.placement)),
        Column[TrialRecord]("state", lambda record: record.state),
        Column[TrialRecord]("reason", lambda record: record.reason or ""),
    ]
    caption = (
        "The rounds of a world size and placement are measured in parts; those before a failed part count."
    )
    return make_table("Failed parts", caption, columns, results.failed)


def times_table(results: SweepResults) -> Table:
    """Times of the headline's messages, a column for each collective: what a terminal shows."""
    place = results.headline
    if place is None:
        return empty_table("")
    found = {(each.collective, each.message_bytes): each for each in results.at(place)}
    collectives = dict.fromkeys(collective for collective, _ in found)

    def cell(collective: Collective) -> Column[int]:
        return Column(collective, lambda size: known(found.get((collective, size)), _brief_time), right=True)

    columns = [Column[int]("message", size_words, right=True), *(cell(each) for each in collectives)]
    sizes = sorted({size for _, size in found})
    return make_table("", f"times on {place_words(place)}", columns, sizes)


def brief_links_table(results: SweepResults) -> Table:
    """The lines, as much of them as a terminal shows."""
    columns = [
        Column[Link]("line of", lambda each: f"{each.collective}, {_brief_place(results, each.place)}"),
        Column[Link]("latency", lambda each: known(each.latency_s, timing), right=True),
        Column[Link](
            "bus GB/s", lambda each: known(each.bus_bandwidth_bytes_per_s, gigabytes_per_s), right=True
        ),
        Column[Link]("error", lambda each: f"{each.typical_error:.0%}", right=True),
    ]
    return make_table("", "", columns, results.links)


def place_words(place: SweptPlace) -> str:
    """2 devices on 1 node, pack, gloo."""
    return f"{where_words(place)}, {place.backend}"


def where_words(place: SweptPlace) -> str:
    """2 devices on 1 node, pack."""
    nodes = "" if place.nodes is None else f" on {counted(place.nodes, 'node')}"
    return f"{devices_words(place.world_size)}{nodes}, {placement_words(place.placement)}"


def _brief_place(results: SweepResults, place: SweptPlace) -> str:
    several = len({each.placement for each in results.places}) > 1
    words = devices_words(place.world_size)
    return f"{words}, {placement_words(place.placement)}" if several else words


def _brief_time(message: Message) -> str:
    time_s = message.time_s
    unit, factor = time_unit(time_s.value)
    return f"{figures(time_s.value * factor)} {unit} {relative_words(time_s)}"


def _decided_by(use: CoreUse) -> str:
    host = "" if use.host_share is None else f", {share(min(use.host_share, 1.0))} of the host"
    return f"the {use.decided_by}: {use.busy_cores:.2f} cores a rank{host}"


def _place_columns(place: Callable[[Row], SweptPlace]) -> list[Column[Row]]:
    return [
        Column("devices", lambda row: str(place(row).world_size), right=True),
        Column("nodes", lambda row: known(place(row).nodes, str), right=True),
        Column("placement", lambda row: placement_words(place(row).placement)),
    ]
