"""The report of a sweep of collectives: tables, plots, its answer in a line, what the terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from raybench.analysis.collectives import (
    FULL,
    HALF,
    HOLDS_WITHIN,
    LEAST_OWN,
    CoreUse,
    LeftOut,
    Link,
    Message,
    SweepResults,
    SweptPlace,
)
from raybench.analysis.labels import devices_words
from raybench.records.record import TrialRecord
from raybench.records.results import NotMeasured
from raybench.report import render
from raybench.report.answer import Clause
from raybench.report.format import (
    figures,
    gigabytes_per_s,
    relative_words,
    share,
    size_words,
    time_unit,
    timing,
)
from raybench.report.method import on_words
from raybench.report.pages import Section, make_pages, with_something, write_files
from raybench.report.plot import (
    COLORS,
    MOST_CURVES,
    Line,
    draw_lines,
    drawn,
    enough,
    far_apart,
    fewest_and_most,
    legend_below,
    legend_height,
    log_y,
    make_figure,
    make_line,
    n_words,
    shown_ends,
    write_title,
)
from raybench.report.sections.trials import failures_words
from raybench.report.table import NONE, Column, Table, empty_table, known, make_table, rich_table, width_on
from raybench.spec.placement import placement_words
from raybench.spec.plural import plural
from raybench.spec.sweep import Collective, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

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
    f"link would hardly help. {NONE}: not known, as on GPUs."
)
LINES = (
    "time = latency + message / bandwidth, by least squares of the logarithms, so that every message counts "
    "equally; intervals at 95% from the residuals, or from the messages' own intervals where these are "
    f"wider. {NONE}: the messages do not show it within a factor of two. The typical error is the median of "
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
    nodes = "" if place.nodes is None else f" on {plural(place.nodes, 'node')}"
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


LABELS = 5  # sizes that have room under an axis
Curve = tuple[tuple[float, float], ...]  # points of a curve


@dataclass(frozen=True)
class MessagesPlot:
    """Times (s) and bus bandwidths (bytes/s) over the message (bytes), a line for each collective."""

    place: str
    times: tuple[Line, ...]
    fitted: tuple[Curve, ...]  # of each of ``times``; empty where nothing was fitted
    bandwidths: tuple[Line, ...]
    rounds: tuple[int, int]


@dataclass(frozen=True)
class PlacesPlot:
    """Bus bandwidths (bytes/s) of one collective over the message, a line for each place."""

    collective: str  # and its backend
    bandwidths: tuple[Line, ...]
    num_left_out: int
    rounds: tuple[int, int]


def messages_plot(results: SweepResults) -> MessagesPlot | None:
    """The headline's messages; None where nothing was measured."""
    place = results.headline
    if place is None:
        return None
    collectives = dict.fromkeys(each.collective for each in results.at(place))
    groups = [results.at(place, collective) for collective in collectives]
    times = tuple(
        make_line(group[0].collective, [(each.message_bytes, each.time_s) for each in group])
        for group in groups
    )
    bandwidths = tuple(
        make_line(
            group[0].collective, [(each.message_bytes, each.bus_bandwidth_bytes_per_s) for each in group]
        )
        for group in groups
    )
    fitted = list[Curve]()
    for group in groups:
        line = results.line(place, group[0].collective)
        sizes = np.geomspace(group[0].message_bytes, group[-1].message_bytes, 80).tolist()
        fitted.append(tuple((size, line.time_s(size)) for size in sizes) if line else ())
    return MessagesPlot(place_words(place), times, tuple(fitted), bandwidths, fewest_and_most(times))


def draw_messages(plot: MessagesPlot) -> Figure:
    """Times with their lines, and bus bandwidths."""
    figure, (left, right) = make_figure(9.0, 3.7 + legend_height(9.0, plot.times), columns=2)
    for index, path in enumerate(plot.fitted):
        if path:
            x, y = np.array(path).T
            left.plot(x, y * 1e6, color=COLORS[index % len(COLORS)], linewidth=3.5, alpha=0.25)
    draw_lines(left, plot.times, scale=1e6, log_x=True)
    draw_lines(right, plot.bandwidths, scale=1e-9, log_x=True)
    points = [point.estimate for line in plot.times for point in line.points]
    log_y(left, [end * 1e6 for end in (*shown_ends(points), *(y for path in plot.fitted for _, y in path))])
    _bandwidth_axis(right, plot.bandwidths)
    left.set_ylabel("time (µs)")
    for axes in (left, right):
        _size_axis(axes, plot.times)
    words = f"{plot.place}: mean and 95% interval, {n_words(plot.rounds)}"
    write_title(figure, f"{words}\nbroad: time = latency + message / bandwidth, fitted")
    legend_below(figure, left)
    return figure


def places_plot(results: SweepResults) -> PlacesPlot | None:
    """The first collective at every place; None where there is one place only."""
    if len(results.places) < 2:
        return None
    collective = results.messages[0].collective
    lines = [
        make_line(
            where_words(place),
            [(each.message_bytes, each.bus_bandwidth_bytes_per_s) for each in results.at(place, collective)],
        )
        for place in results.places
    ]
    shown = tuple(line for line in lines if line.points)[:MOST_CURVES]
    return PlacesPlot(
        f"{collective}, {results.places[0].backend}", shown, len(lines) - len(shown), fewest_and_most(shown)
    )


def draw_places(plot: PlacesPlot) -> Figure:
    """Bus bandwidths over the message at every place."""
    figure, (axes,) = make_figure(6.4, 3.7 + legend_height(6.4, plot.bandwidths))
    draw_lines(axes, plot.bandwidths, scale=1e-9, log_x=True)
    _bandwidth_axis(axes, plot.bandwidths)
    _size_axis(axes, plot.bandwidths)
    note = f" · {plural(plot.num_left_out, 'place')} more in the tables" if plot.num_left_out else ""
    write_title(figure, f"{plot.collective}: mean and 95% interval, {n_words(plot.rounds)}{note}")
    legend_below(figure, axes)
    return figure


def _size_axis(axes: Axes, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import NullLocator

    sizes = sorted({int(point.x) for line in lines for point in line.points})
    axes.set_xscale("log", base=2)
    shown = enough(far_apart(sizes, LABELS), sizes)
    axes.set_xticks(shown, [size_words(size) for size in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(sizes[0] / 2**0.6, sizes[-1] * 2**0.6)
    axes.set_xlabel("message")


def _bandwidth_axis(axes: Axes, lines: Sequence[Line]) -> None:
    highest = max(shown_ends(point.estimate for line in lines for point in line.points))
    axes.set_ylim(0, 1.06e-9 * highest)
    axes.set_ylabel("bus bandwidth (GB/s)")


MOST_NAMES = 3  # of what was not measured, in the answer
ESTIMATOR = (
    "The time of a block is that of its slowest rank; over the rounds the 10% trimmed mean of its logarithm "
    "is taken, with its 95% Student-t interval (Tukey and McLaughlin 1963). n counts rounds. All intervals "
    "are of one start of the workers."
)
BLOCKS = (
    "In each round every collective runs one block on every message, in an order that is shuffled again. "
    "Ranks meet at a barrier before each block; a block is so many operations, one after the other, that it "
    "is long enough for the clock, and where it has several the first is thrown away."
)
CHECKED = (
    "Messages are float32 in buffers that were allocated and written to before anything was timed. Before "
    "it is timed every collective is run once on every message with numbers of the ranks, and its result "
    "compared with what it must be."
)
GLOO = (
    "gloo has no reduce_scatter of its own: torch makes it of an all_reduce of a copy (pytorch pull request "
    "118911), so its bus bandwidth is at most half of all_reduce's."
)


def write_sweep_report(directory: Path, results: SweepResults, environment: Mapping[str, Any]) -> list[Path]:
    """Write all files of ``directory/report`` and return their paths, ``report.html`` first.

    ``directory`` is the results directory, ``environment`` what environment.json holds. Raises ``OSError``
    where the directory cannot be written.
    """
    tables = (
        links_table(results),
        messages_table(results),
        left_out_table(results),
        failed_parts_table(results),
    )
    plots = [
        *drawn("communication", "Messages", messages_plot(results), draw_messages),
        *drawn("places", "World sizes and placements", places_plot(results), draw_places),
    ]
    pages = make_pages(
        directory,
        environment,
        asked_by=_again(results.sweep),
        title=Sweep.name,
        about=_about(results, environment),
        box=[Clause("Result", sweep_answer(results))],
        sections=with_something(
            {"messages": Section("Messages", ("communication", "places"), tables)}, plots
        ),
        plots=plots,
        method=_method(results),
    )
    table = render.rows_csv([each.row() for each in results.messages])
    return write_files(directory / "report", {**pages, "communication.csv": table}, plots)


def _about(results: SweepResults, environment: Mapping[str, Any]) -> str:
    """The largest of what was measured, on what and when; empty where nothing was."""
    sizes = {record.request.config.world_size: record for record in reversed(results.complete)}
    if not sizes:
        return ""
    return on_words("collectives", sizes[max(sizes)], results.records, environment)


def sweep_answer(results: SweepResults) -> str:
    """What the sweep found: a line, its clauses separated by semicolons."""
    place = results.headline
    if place is None:
        return f"nothing was measured{_failures(results)}"
    groups = [results.at(place, collective) for collective in results.sweep.collectives]
    clauses = [_extremes(group[0], group[-1]) for group in groups if group]
    named = [*clauses, *_by_cores(groups), *_not_measured(results)]
    return "; ".join([*_marks(results), place_words(place), *named])


def print_sweep(results: SweepResults, console: Console) -> None:
    """The times at the headline, the lines of every place, the answer."""
    from rich.text import Text

    width = width_on(console)
    for table in (times_table(results), brief_links_table(results), left_out_table(results)):
        if table.rows:
            console.print(rich_table(table, width))
    console.print(Text(sweep_answer(results), style="bold"))


def _extremes(smallest: Message, largest: Message) -> str:
    """The smallest and the largest message: latency, and bandwidth."""
    latency = f"{timing(smallest.time_s)} for {size_words(smallest.message_bytes)}"
    bandwidth = gigabytes_per_s(largest.bus_bandwidth_bytes_per_s)
    if smallest == largest:
        return f"{smallest.collective}: {latency}, bus bandwidth {bandwidth} GB/s"
    size = size_words(largest.message_bytes)
    return f"{smallest.collective}: {latency}, bus bandwidth {bandwidth} GB/s for {size}"


def _by_cores(groups: Sequence[Sequence[Message]]) -> list[str]:
    """Where a faster link would hardly help."""
    numbers = [(group, sum(each.cores_decide for each in group)) for group in groups]
    named = [f"{group[0].collective} ({n} of {plural(len(group), 'message')})" for group, n in numbers if n]
    return [f"the cores decide here, not the link: {', '.join(named)}"] if named else []


def _marks(results: SweepResults) -> list[str]:
    if any(record.request.config.oversubscribed for record in results.complete):
        return ["oversubscribed: more workers than cores, so not to be relied on"]
    return []


def _not_measured(results: SweepResults) -> list[str]:
    listed = sorted(results.left_out, key=lambda each: each.what.message_bytes is not None)
    names = list(dict.fromkeys(_name(each.what) for each in listed))  # of several places
    more = len(names) - MOST_NAMES
    shown = names[:MOST_NAMES] + ([f"{more} more"] if more > 0 else [])
    words = [f"not measured: {', '.join(shown)}"] if names else []
    return words + ([f"failed parts{_failures(results)}"] if results.failed else [])


def _name(what: NotMeasured) -> str:
    size = "" if what.message_bytes is None else f" of {size_words(what.message_bytes)}"
    return f"{what.collective}{size} ({what.why})"


def _failures(results: SweepResults) -> str:
    return f": {failures_words(results.failed)}" if results.failed else ""


def _method(results: SweepResults) -> list[str]:
    if not results.complete:
        return ["No part of the sweep is complete."]
    backends = {place.backend for place in results.places}
    reduce_scatter = "reduce_scatter" in results.sweep.collectives and "gloo" in backends
    return [BLOCKS, ESTIMATOR, CHECKED, *([GLOO] if reduce_scatter else [])]


def _again(sweep: Sweep) -> str:
    """The command that measures the same."""
    sizes = sweep.world_sizes
    named = {
        "--collectives": ",".join(sweep.collectives),
        "--sizes": ",".join(map(str, sweep.message_bytes)),
        "--world-sizes": sizes if sizes == "all" else ",".join(map(str, sizes)),
        "--placement": ",".join(sweep.placement),
        "--max-seconds": f"{sweep.measure.max_seconds:g}",
        "--device": sweep.resources.device,
        "--cpus-per-worker": str(sweep.resources.cpus_per_worker),
        "--seed": str(sweep.seed),
    }
    words = [f"{option} {value}" for option, value in named.items()]
    more = ["--oversubscribe"] if sweep.resources.oversubscribe else []
    return " ".join([f"python -m raybench.study {Sweep.name}", *words, *more])
