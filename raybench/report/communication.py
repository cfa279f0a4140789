"""The report of a sweep of collectives: its answer, tables, plots and files, what the terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from raybench.analysis.collectives import Link, Message, SweepResults, SweptPlace
from raybench.analysis.labels import devices_words
from raybench.analysis.stats.statistics import Estimate
from raybench.records.csv_files import rows_csv
from raybench.report.answer import Clause
from raybench.report.format import (
    duration_words,
    figures,
    gigabytes_per_s,
    number_words,
    plain_lasting,
    plus_minus,
    size_words,
)
from raybench.report.method import on_words
from raybench.report.pages import Section, make_pages, write_files
from raybench.report.plot import (
    SEPARATED,
    Line,
    draw_lines,
    drawn,
    legend_below,
    log2_axis,
    make_figure,
    make_line,
    write_title,
)
from raybench.report.sections.trials import failures_words
from raybench.report.table import NONE, Column, Row, Table, make_table, numbers, print_table
from raybench.spec.placement import placement_words
from raybench.spec.plural import plural
from raybench.spec.sweep import Collective, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = f"time = latency + bytes over each link / bus bandwidth; 95% intervals. {NONE}: no message shows it."


def links_table(results: SweepResults) -> Table:
    """The line of every collective at every place."""
    columns: list[Column[Link]] = [
        Column("collective", lambda each: each.collective),
        *_place_columns(lambda each: each.place),
        numbers("latency", lambda each: each.latency_s, plain_lasting),
        numbers("bus bandwidth, GB/s", lambda each: each.bus_bandwidth_bytes_per_s, gigabytes_per_s),
    ]
    return make_table("Latency and bandwidth", LINES, columns, results.links)


def times_table(results: SweepResults) -> Table:
    """The times of every message, a column for each collective."""
    found = {(each.place, each.message_bytes, each.collective): each.time_s for each in results.messages}
    places = results.places
    rows = sorted({key[:2] for key in found}, key=lambda row: (places.index(row[0]), row[1]))

    def time_of(collective: Collective) -> Column[tuple[SweptPlace, int]]:
        words = partial(plain_lasting, words=plus_minus)
        return numbers(collective, lambda row: found.get((*row, collective)), words)

    columns = [
        *_place_columns(lambda row: row[0]),
        numbers("message", lambda row: row[1], size_words),
        *map(time_of, dict.fromkeys(each.collective for each in results.messages)),
    ]
    rounds = number_words([each.time_s.n for each in results.messages], "round")
    caption = f"Of the slowest rank, with 95% intervals, n = {rounds}."
    return make_table("Times", caption, columns, rows)


def _place_columns(place: Callable[[Row], SweptPlace]) -> list[Column[Row]]:
    return [
        numbers("devices", lambda row: place(row).world_size),
        numbers("nodes", lambda row: place(row).nodes),
        Column("placement", lambda row: placement_words(place(row).placement)),
    ]


def place_words(place: SweptPlace) -> str:
    """2 devices on 1 node, pack."""
    nodes = "" if place.nodes is None else f" on {plural(place.nodes, 'node')}"
    return f"{devices_words(place.world_size)}{nodes}, {placement_words(place.placement)}"


MOST_SIZES = 5  # that have room under an axis


def draw_messages(results: SweepResults, place: SweptPlace) -> Figure:
    """Bus bandwidths of the messages at a place, a line for each collective, and left of them the times."""
    collectives = dict.fromkeys(each.collective for each in results.at(place))
    groups = {collective: results.at(place, collective) for collective in collectives}

    def lines(of: Callable[[Message], Estimate]) -> list[Line]:
        return [make_line(name, [(each.message_bytes, of(each)) for each in groups[name]]) for name in groups]

    figure, (left, right) = make_figure(9.0, 3.7, columns=2)
    ends = draw_lines(left, lines(lambda each: each.time_s), scale=1e6)
    left.set_yscale("log")
    left.yaxis.set_major_formatter(SEPARATED)
    left.set_ylim(min(ends) / 1.15, max(ends) * 1.15)
    left.set_ylabel("time (µs)")
    ends = draw_lines(right, lines(lambda each: each.bus_bandwidth_bytes_per_s), scale=1e-9)
    right.set_ylim(0, 1.06 * max(ends))
    right.set_ylabel("bus bandwidth (GB/s)")
    for axes in (left, right):
        log2_axis(axes, sorted({each.message_bytes for each in results.at(place)}), size_words, MOST_SIZES)
        axes.set_xlabel("message")
    rounds = number_words([each.time_s.n for each in results.at(place)], "round")
    write_title(figure, f"{place_words(place)}, {place.backend}: mean and 95% interval, n = {rounds}")
    legend_below(figure, right)
    return figure


def sweep_answer(results: SweepResults) -> list[Clause]:
    """Latency and bandwidth of each collective at the headline's place, what is missing."""
    place, failed = results.headline, failures_words(results.failed)
    if place is None:
        return [Clause("Result", f"Nothing was measured{failed and f': {failed}'}.")]
    groups = [group for each in results.sweep.collectives if (group := results.at(place, each))]
    oversubscribed = any(record.request.config.oversubscribed for record in results.complete)
    clauses: dict[str, str] = {
        "Measured on": f"{place_words(place)}, {place.backend}",
        **{group[0].collective: _extremes(group[0], group[-1]) for group in groups},
        "Oversubscribed": "more workers than cores, so not to be relied on" if oversubscribed else "",
        "Failed": failed,
    }
    return [Clause(question, f"{words}.") for question, words in clauses.items() if words]


def answer_of_sweep(results: SweepResults) -> str:
    """The whole answer in one line."""
    return " ".join(f"{each.question}: {each.words}" for each in sweep_answer(results))


def print_sweep(results: SweepResults, console: Console) -> None:
    """The tables of the report, then the answer."""
    for table in _tables(results):
        print_table(table, console)
    for each in sweep_answer(results):
        console.print(Text(f"{each.question}: {each.words}", style="bold"))


def _extremes(smallest: Message, largest: Message) -> str:
    """The smallest and the largest message: latency, and bandwidth."""
    bandwidth = figures(largest.bus_bandwidth_bytes_per_s.value * 1e-9)
    return (
        f"{duration_words(smallest.time_s.value)} for {size_words(smallest.message_bytes)}, "
        f"bus bandwidth {bandwidth} GB/s for {size_words(largest.message_bytes)}"
    )


BLOCKS = (
    "In each round every collective runs one block of operations on every message, in shuffled order, from a "
    "barrier on; of several operations the first is thrown away. Messages are float32."
)
ESTIMATOR = (
    "The time of a block is that of its slowest rank; over the rounds the 10% trimmed mean of its logarithm "
    "is taken, with its 95% Student-t interval (Tukey and McLaughlin 1963). All intervals are of one start "
    "of the workers."
)
BANDWIDTHS = (
    "Bandwidths are those of nccl-tests, in 10^9 bytes/s: the algorithm's is the message over its time; the "
    "bus's is that times 2(n-1)/n for all_reduce, (n-1)/n for reduce_scatter and all_gather, and 1 for "
    "broadcast, and compares with the rate of each device's link. The message is the larger of what goes in "
    "and what comes out. communication.csv has both for every message."
)
FITTED = "Lines are least squares of the logarithms: every message counts equally."


def write_sweep_report(
    directory: Path, results: SweepResults, environment: Mapping[str, Any], command: str
) -> list[Path]:
    """Write all files of ``directory/report`` and return their paths, ``report.html`` first.

    ``directory`` is the results directory, ``environment`` what environment.json holds, ``command`` measures
    the same. Raises ``OSError`` where the directory cannot be written.
    """
    place = results.headline
    plots = drawn("communication", "Messages", draw_messages(results, place) if place else None)
    links, times = _tables(results)
    sections = {
        "links": Section(links.title, plots, (links,)),
        "times": Section(times.title, tables=(times,)),
    }
    largest = max(results.complete, key=lambda record: record.request.config.world_size, default=None)
    pages = make_pages(
        directory,
        environment,
        asked_by=command,
        title=Sweep.name,
        about=on_words("collectives", largest, results.records, environment) if largest else "",
        box=sweep_answer(results),
        sections=sections,
        method=[BLOCKS, ESTIMATOR, BANDWIDTHS, FITTED],
    )
    rows = rows_csv([each.row() for each in results.messages])
    return write_files(directory / "report", {**pages, "communication.csv": rows})


def _tables(results: SweepResults) -> tuple[Table, Table]:
    return links_table(results), times_table(results)
