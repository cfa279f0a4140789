"""The report of a sweep of collectives: its files, its answer in a line, what the terminal shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raybench.analysis.collectives.messages import Message
from raybench.analysis.collectives.results import SweepResults
from raybench.records.collectives import NotMeasured
from raybench.report import formats
from raybench.report.answer import Clause
from raybench.report.failures_words import failures_words
from raybench.report.format import gigabytes_per_s, size_words, timing
from raybench.report.measured_on import on_words
from raybench.report.pages import make_pages, write_files
from raybench.report.plots.collectives import draw_messages, draw_places, messages_plot, places_plot
from raybench.report.plots.drawn import drawn
from raybench.report.rich_tables import rich_table, width_on
from raybench.report.sections import Place, make_sections
from raybench.report.tables.collectives import (
    brief_links_table,
    failed_parts_table,
    left_out_table,
    links_table,
    messages_table,
    place_words,
    times_table,
)
from raybench.spec.counted import counted
from raybench.spec.sweep import Sweep

if TYPE_CHECKING:
    from rich.console import Console

MOST_NAMES = 3  # of what was not measured, in the answer
ESTIMATOR = (
    "The time of a block is that of its slowest rank; over the rounds the 10% trimmed mean of its logarithm "
    "is taken, with its 95% Student-t interval (Tukey and McLaughlin 1963). n counts rounds. All intervals "
    "are of one start of the workers."
)
BLOCKS = (
    "In each round every collective runs one block on every message, in an order that is shuffled anew. "
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
        name=Sweep.name,
        about=_about(results, environment),
        box=[Clause("Result", sweep_answer(results))],
        sections=make_sections({"messages": Place("Messages", ("communication", "places"), tables)}, plots),
        method=_method(results),
    )
    table = formats.rows_csv([each.row() for each in results.messages])
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
    """The two messages that tell most: latency, and bandwidth."""
    latency = f"{timing(smallest.time_s)} for {size_words(smallest.message_bytes)}"
    bandwidth = gigabytes_per_s(largest.bus_bandwidth_bytes_per_s)
    if smallest == largest:
        return f"{smallest.collective}: {latency}, bus bandwidth {bandwidth} GB/s"
    size = size_words(largest.message_bytes)
    return f"{smallest.collective}: {latency}, bus bandwidth {bandwidth} GB/s for {size}"


def _by_cores(groups: Sequence[Sequence[Message]]) -> list[str]:
    """Where a faster link would hardly help."""
    numbers = [(group, sum(each.cores_decide for each in group)) for group in groups]
    named = [f"{group[0].collective} ({n} of {counted(len(group), 'message')})" for group, n in numbers if n]
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
