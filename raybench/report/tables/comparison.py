"""Tables of several studies side by side, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raybench.analysis.attribution import ModelChange, between
from raybench.analysis.comparison import SameTrial, Side, differences, same_trials
from raybench.analysis.estimates.efficiency import Scaling
from raybench.analysis.labels import devices_words
from raybench.analysis.summary import model_name
from raybench.report.tables.tables import Column, Table, milliseconds
from raybench.report.wording import figures, interval, percent, times
from raybench.spec.toml import received

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

NONE = "–"


def sides_table(sides: Sequence[Side]) -> Table:
    """What each study measured and found at its default on its target world size."""
    columns = [dict(_facts(side)) for side in sides]
    rows = tuple((name, *(column[name] for column in columns)) for name in columns[0])
    caption = "The default of each study at its largest world size; means with 95% intervals over n rounds."
    return Table("Side by side", caption, _columns(sides, ""), rows)


def differences_table(sides: Sequence[Side]) -> Table:
    """What is not the same everywhere; empty where all is."""
    rows = tuple(
        (each.name, *(NONE if value is None else _plain(value) for value in each.values))
        for each in differences(sides)
    )
    return Table("What differs", "", _columns(sides, ""), rows)


def same_trials_table(first: Side, other: Side) -> Table:
    """The trials that both measured, with how much faster the second is; empty where they share none."""
    rows = tuple(
        (
            devices_words(each.record.config.world_size),
            each.label,
            times(each.speed),
            times(each.efficiency) if each.efficiency else "",
            _verdict(each),
        )
        for each in same_trials(first, other)
    )
    caption = (
        "The intervals hold the noise within each run, not what changes from one hour to another: repeat "
        "both before a small difference is believed."
    )
    columns = (
        Column("devices"),
        Column("setting"),
        Column("samples/s", True),
        Column("efficiency", True),
        Column("verdict"),
    )
    return Table(f"The same trials: {other.name} over {first.name}", caption, columns, rows)


def change_table(first: Side, other: Side) -> Table:
    """How much of the change between two defaults came from the workload, and how much from the setting."""
    title, found = f"From {first.name} to {other.name}", between(first.results, other.results)
    if found is None or first.results.study.workload == other.results.study.workload:
        return Table(title, "", (), ())
    caption = f"Ratios of the efficiency on {devices_words(found.world_size)}; 1.00x is no change."
    if found.same_setting:
        caption += f" The workloads are compared at {found.same_setting}, which both studies measured."
    else:
        caption += " The studies have no setting in common: what the workload did cannot be told apart."
    return Table(title, caption, (Column("part"), Column("effect", True)), tuple(_change_rows(found)))


def print_comparison(sides: Sequence[Side], console: Console) -> None:
    """All tables that have something to say."""
    from rich.text import Text

    first = sides[0]
    found, alone = [sides_table(sides), differences_table(sides)], list[str]()
    for other in sides[1:]:
        shared = same_trials_table(first, other)
        found += [shared, change_table(first, other)]
        if not shared.rows:
            alone.append(other.name)
    for table in found:
        if table.rows:
            console.print(_rich(table, min(console.width, 100)))
            if table.caption:
                console.print(Text(table.caption + "\n"))
    if alone:
        console.print(Text(f"no trial in common with {first.name}: {', '.join(alone)}"))


def _facts(side: Side) -> Iterator[tuple[str, str]]:
    results, environment = side.results, side.environment
    headline = results.headline
    found = results.scaling(headline) if headline else None
    packages = environment.packages
    yield "study", results.study.name
    yield "measured on", side.day or NONE
    yield "model", model_name(headline) if headline else NONE
    yield "devices", _devices(side)
    yield "interconnect", _interconnect(side)
    yield "raybench, torch, ray", ", ".join(packages.get(name, "?") for name in ("raybench", "torch", "ray"))
    yield "default", results.headline_label or NONE
    yield "global batch", f"{headline.config.global_batch_size:,}" if headline else NONE
    yield "step time, ms", milliseconds(found.step_time_s) if found else NONE
    yield "samples/s", interval(found.throughput_samples_per_s) if found else NONE
    yield from _efficiency(found)
    best = results.best
    yield "best setting", results.best_label if best else NONE


def _efficiency(found: Scaling | None) -> Iterator[tuple[str, str]]:
    yield "speed-up", times(found.speedup) if found and found.speedup else NONE
    yield "efficiency", percent(found.efficiency) if found and found.efficiency else NONE
    yield "n", str(found.step_time_s.n) if found else NONE


def _devices(side: Side) -> str:
    headline = side.results.headline
    name = headline.device_name if headline and headline.device_name else side.environment.cpu_model
    number = headline.config.world_size if headline else 0
    nodes = f" on {headline.nodes} nodes" if headline and headline.nodes and headline.nodes > 1 else ""
    return f"{number} x {name}{nodes}"


def _interconnect(side: Side) -> str:
    links = sorted({link for row in side.environment.gpu_links for link in row} - {"", "X"})
    if links:
        return ", ".join(links)
    headline = side.results.headline
    on_cpus = headline is not None and headline.config.device == "cpu"
    return "gloo within a node" if on_cpus and headline and (headline.nodes or 1) == 1 else "not known"


def _verdict(each: SameTrial) -> str:
    if not each.speed.excludes(1.0):
        return "no difference seen"
    return "slower" if each.is_slower else "faster"


def _change_rows(found: ModelChange) -> Iterator[tuple[str, str]]:
    yield "efficiency before", percent(found.before)
    yield "efficiency after", percent(found.after)
    yield "all together", times(found.total)
    parts = (
        ("the workload alone", found.workload),
        ("the setting alone", found.settings),
        ("what is more, or less, of both together", found.interaction),
    )
    yield from ((name, times(part)) for name, part in parts if part)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return figures(value)
    return value if isinstance(value, str) else received(value)


def _columns(sides: Sequence[Side], first: str) -> tuple[Column, ...]:
    return (Column(first), *(Column(side.name) for side in sides))


def _rich(table: Table, width: int) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD, width=width, pad_edge=False
    )
    for column in table.columns:
        drawn.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn
