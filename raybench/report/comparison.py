"""What ``compare`` prints and writes: the tables of several studies side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raybench.analysis.attribution import ModelChange
from raybench.analysis.comparison import Difference, FurtherSide, OverAnother, SameTrial, Side, SideBySide
from raybench.analysis.labels import devices_words
from raybench.analysis.load import load_words
from raybench.analysis.results import StudyResults
from raybench.analysis.summary import model_name
from raybench.report import render
from raybench.report.answer import SMOKE, Clause, answer
from raybench.report.format import count, figures, interval, milliseconds, percent, times
from raybench.report.method import began_words, hardware_words, method_words
from raybench.report.pages import Section, make_pages, with_something, write_files
from raybench.report.plot import MOST_CURVES, drawn
from raybench.report.sections.scaling import (
    ScalingPlot,
    draw_scaling,
    scaling_plot,
    scaling_table,
    seen_words,
)
from raybench.report.sections.training import draw_training, training_plot, training_table
from raybench.report.sections.trials import failures_words
from raybench.report.sections.waterfall import WaterfallPlot, draw_waterfall, waterfall_plot
from raybench.report.table import (
    NONE,
    Column,
    Heading,
    Table,
    empty_table,
    known,
    make_table,
    rich_table,
    width_on,
)
from raybench.spec.knobs import KnobValue
from raybench.spec.user_input import received

if TYPE_CHECKING:
    from rich.console import Console

SHORT = ("All changes together", "Scaling", "What to change", "Result")  # of an answer


def comparison_tables(studies: SideBySide) -> list[Table]:
    """All that have something to say, in order."""
    tables = [sides_table(studies.sides), differences_table(studies), over_another_table(studies)]
    for other in studies.others:
        same = same_trials_table(studies.first, other)
        tables += [same, change_table(studies.first, other)]
    return [table for table in tables if table.rows]


@dataclass(frozen=True)
class _Row:
    """A name, and what each study says."""

    name: str
    cells: tuple[str, ...]


def sides_table(sides: Sequence[Side]) -> Table:
    """What each study measured and found at its default on its target world size."""
    described = [dict(_description(side)) for side in sides]
    rows = [_Row(name, tuple(side[name] for side in described)) for name in described[0]]
    rows = [row for row in rows if set(row.cells) != {NONE}]
    caption = "The default of each study at its largest world size; means with 95% intervals over n rounds."
    return make_table("Side by side", caption, _columns(sides), rows)


def differences_table(studies: SideBySide) -> Table:
    """What is not the same everywhere; empty where all is."""
    rows = [_Row(each.name, tuple(_values(each))) for each in studies.differences]
    return make_table("What differs", "", _columns(studies.sides), rows)


def _columns(sides: Sequence[Side]) -> list[Column[_Row]]:
    """A column of names, then one for each study."""
    return [
        Column("", lambda row: row.name),
        *(_study_column(side, place) for place, side in enumerate(sides)),
    ]


def _study_column(side: Side, place: int) -> Column[_Row]:
    return Column(side.name, lambda row: row.cells[place], stays=True)


_OVER_ANOTHER_COLUMNS: list[Column[OverAnother]] = [
    Column("results", lambda each: each.side),
    Column("devices", lambda each: str(each.world_size), right=True),
    Column("base", lambda each: f"{devices_words(each.base_world_size)} of {each.base}"),
    Column("efficiency", lambda each: known(each.efficiency, percent, "refused"), right=True),
    Column("why", lambda each: each.refused and f"the base ran on other hardware: {each.refused}"),
]


def over_another_table(studies: SideBySide) -> Table:
    """Efficiencies over another side's base; empty where every side has its own."""
    caption = (
        "Of trials without a base of their own. They were measured separately, so what starts of one program "
        "differ by is in the interval; over a base on another machine there is no efficiency."
    )
    title = "Efficiency over another's base"
    return make_table(title, caption, _OVER_ANOTHER_COLUMNS, studies.over_another)


def every_scaling_table(studies: SideBySide) -> Table:
    """The first table of every side as one, with a column for the side."""
    caption = "95% intervals; speed-up and efficiency over one device, unless a base is named."
    return _joined("Every setting shown", caption, studies.sides, scaling_table)


def _joined(
    title: str,
    caption: str,
    sides: Sequence[Side],
    table_of: Callable[[StudyResults], Table],
) -> Table:
    tables = [table_of(side.results) for side in sides]
    # some sides have columns that others have not
    columns = max((table.columns for table in tables), key=len)
    columns += tuple({each: None for table in tables for each in table.columns if each not in columns})
    rows = list[tuple[str, ...]]()
    for side, table in zip(sides, tables, strict=True):
        for row in table.rows:
            cells = dict(zip(table.columns, row, strict=True))
            rows.append((side.name, *(cells.get(each, "") for each in columns)))
    return Table(title, caption, (Heading("results"), *columns), tuple(rows))


_SAME_TRIAL_COLUMNS: list[Column[SameTrial]] = [
    Column("devices", lambda trial: devices_words(trial.record.config.world_size)),
    Column("setting", lambda trial: trial.label),
    Column("samples/s", lambda trial: times(trial.speed), right=True),
    Column("efficiency", lambda trial: known(trial.efficiency, times, ""), right=True),
    Column("verdict", lambda trial: _verdict(trial)),
]


def same_trials_table(first: Side, other: FurtherSide) -> Table:
    """The trials that both measured, with how much faster the second is; empty where they share none."""
    said = dict.fromkeys(starts_words(trial) for trial in other.same_trials)
    caption = (
        f"The intervals hold the noise within each run and what starts of one program differ by: "
        f"{'; or '.join(said)}. What changes from one day to another is not in them."
    )
    title = f"The same trials: {other.name} over {first.name}"
    return make_table(title, caption, _SAME_TRIAL_COLUMNS, other.same_trials)


def starts_words(trial: SameTrial) -> str:
    """In how many starts of the workers each side was measured."""
    first, other = trial.starts
    return "one start each" if first == other == 1 else f"{first} and {other} starts"


def _verdict(trial: SameTrial) -> str:
    if not trial.speed.excludes(1.0):
        return "no difference seen"
    if trial.is_under_load:
        return "slower, under load"
    return "slower" if trial.is_slower else "faster"


def loads_words(trial: SameTrial) -> str:
    """What other processes took while the second side was measured, and the first."""
    before, now = trial.loads
    return f"{load_words(now)}, at first {f'{before.taken:.2f}' if before else 'not known'}"


_CHANGE_COLUMNS: list[Column[tuple[str, str]]] = [
    Column("part", lambda row: row[0]),
    Column("effect", lambda row: row[1], right=True),
]


def change_table(first: Side, other: FurtherSide) -> Table:
    """How much of the change between two defaults came from the workload, and how much from the setting."""
    title, change = f"From {first.name} to {other.name}", other.change
    if change is None:
        return empty_table(title)
    caption = f"Ratios of the efficiency on {devices_words(change.world_size)}; 1.00x is no change."
    if change.same_setting:
        caption += f" The workloads are compared at {change.same_setting}, which both studies measured."
    else:
        caption += " The studies have no setting in common: what the workload alone did is not known."
    if other.under_load is not None:
        loaded, quiet = other.under_load
        assert loaded.load is not None
        beside = f"{quiet.load.taken:.2f} in {quiet.name}" if quiet.load else f"not known of {quiet.name}"
        caption += (
            f" {loaded.name} was measured under load: {load_words(loaded.load)}, {beside}. "
            "Any of this may be due to that."
        )
    return make_table(title, caption, _CHANGE_COLUMNS, _change_rows(change))


def _change_rows(change: ModelChange) -> Iterator[tuple[str, str]]:
    yield "efficiency before", percent(change.before)
    yield "efficiency after", percent(change.after)
    yield "all together", times(change.total)
    parts = (
        ("the workload alone", change.workload),
        ("the setting alone", change.settings),
        ("what is more, or less, of both together", change.interaction),
    )
    yield from ((name, times(part)) for name, part in parts if part)


def _description(side: Side) -> Iterator[tuple[str, str]]:
    results, environment = side.results, side.environment
    headline, scaling = results.headline, results.headline_scaling
    packages = environment.packages
    yield "study", results.study.name
    yield "began", began_words(results.records) or NONE
    yield "other processes, cores", f"{side.load.taken:.2f} of {side.load.cores}" if side.load else NONE
    yield "model", model_name(headline) if headline else NONE
    yield "devices", hardware_words(headline, environment.cpu_model) if headline else NONE
    yield "interconnect", _interconnect(side)
    yield "raybench, torch, ray", ", ".join(packages.get(name, "?") for name in ("raybench", "torch", "ray"))
    yield "default", results.headline_label or NONE
    yield "global batch", f"{headline.config.global_batch_size:,}" if headline else NONE
    yield "step time, ms", milliseconds(scaling.step_time_s) if scaling else NONE
    yield "samples/s", interval(scaling.throughput_samples_per_s) if scaling else NONE
    yield "speed-up", known(scaling.speedup, times) if scaling else NONE
    yield "efficiency", known(scaling.efficiency, percent) if scaling else NONE
    yield "n", count(scaling.step_time_s) if scaling else NONE
    yield "best setting", results.best_label if results.best else NONE
    best = results.scaling(results.best.record) if results.best else None
    yield "its samples/s", interval(best.throughput_samples_per_s) if best else NONE
    yield "its speed-up", known(best.speedup, times) if best else NONE
    yield "failed", failures_words(results.failed) or NONE


def _interconnect(side: Side) -> str:
    links = sorted({link for row in side.environment.gpu_links for link in row} - {"", "X"})
    if links:
        return ", ".join(links)
    headline = side.results.headline
    on_cpus = headline is not None and headline.config.device == "cpu"
    return "gloo within a node" if on_cpus and headline and (headline.nodes or 1) == 1 else "not known"


def _values(difference: Difference) -> Iterator[str]:
    """Of each side as TOML has it, a text without quotation marks."""
    for value in difference.values:
        if value is None:
            yield NONE
        elif isinstance(value, float):
            yield figures(value)
        else:
            yield value if isinstance(value, str) else received(value)


def defaults_plot(sides: Sequence[Side]) -> ScalingPlot | None:
    """Each side's default over the devices; None where no side has two numbers of them."""
    plots = [scaling_plot(side.results, side.name) for side in sides]
    first = tuple(each for plot in plots if plot is not None for each in plot.settings)[:MOST_CURVES]
    return ScalingPlot(seen_words(first), first) if first else None


def steps_plot(sides: Sequence[Side]) -> WaterfallPlot | None:
    """Where the step of each side's default goes."""
    plots = [waterfall_plot(side.results, side.name) for side in sides]
    bars = tuple(plot.bars[0] for plot in plots if plot is not None)[:MOST_CURVES]
    return WaterfallPlot("Where the time of each default's step goes", bars) if bars else None


def print_comparison(studies: SideBySide, console: Console) -> None:
    """All tables that have something to say, then who has nothing in common with the first."""
    from rich.text import Text

    for table in comparison_tables(studies):
        console.print(rich_table(table, width_on(console)))
        if table.caption:
            console.print(Text(table.caption + "\n"))
    alone = [other.name for other in studies.others if not other.same_trials]
    if alone:
        console.print(Text(f"no trial in common with {studies.first.name}: {', '.join(alone)}"))


def write_comparison(directory: Path, studies: SideBySide, command: str) -> list[Path]:
    """Write report.html and the other kinds of files of a report; their paths, ``report.html`` first.

    ``command`` makes them again. Raises ``OSError`` where ``directory`` cannot be written.
    """
    compared = [
        *drawn("scaling", "The defaults over the devices", defaults_plot(studies.sides), draw_scaling),
        *drawn("waterfall", "Where the time goes", steps_plot(studies.sides), draw_waterfall),
    ]
    trained = [
        each
        for place, side in enumerate(studies.sides, start=1)
        for each in drawn(f"training_{place}", side.name, training_plot(side.results), draw_training)
    ]
    plots = [*compared, *trained]
    every = every_scaling_table(studies)
    trainings = training_table({side.name: side.results for side in studies.sides})
    tables = comparison_tables(studies)
    places = {
        "sides": Section("Side by side", tables=tuple(tables[:1])),
        "plots": Section("Plots", tuple(plot.name for plot in compared)),
        "more": Section("What differs, and the same trials", tables=tuple(tables[1:])),
        "every": Section("Every setting shown", tables=(every,)),
        "training": Section("Every training", tuple(plot.name for plot in trained), (trainings,)),
    }
    name = " and ".join(side.name for side in studies.sides)
    pages = make_pages(
        directory,
        {"results": [f"{side.name}: {side.environment.hostname}" for side in studies.sides]},
        asked_by=command,
        again=command,
        title=name,
        box=[Clause(side.name, _short_answer(side.results)) for side in studies.sides],
        sections=with_something(places, plots),
        plots=plots,
        method=[f"{side.name}: {method_words(side.results)[0]}" for side in studies.sides],
    )
    contents = {
        **pages,
        "summary.csv": render.rows_csv(_rows(studies)),
        "summary.tex": render.to_tex(every, name),
    }
    return write_files(directory, contents, plots)


def comparison_markdown(studies: SideBySide, verdicts: Sequence[str]) -> str:
    """The tables with each side's answer as one piece of a page; ``verdicts`` stand first."""
    name = " and ".join(side.name for side in studies.sides)
    answers = [f"{side.name}: {_short_answer(side.results)}" for side in studies.sides]
    lines = [f"## {render.markdown_text(name)}", "", *_listed([*verdicts, *answers])]
    for table in comparison_tables(studies):
        lines += [f"### {render.markdown_text(table.title)}", "", render.to_markdown(table)]
        lines += [render.markdown_text(table.caption), ""]
    return "\n".join(lines) + "\n"


def interleaved_markdown(lines: Sequence[str]) -> str:
    """The lines of a comparison in starts that take turns, the same way."""
    return "\n".join(["## Compared in starts that take turns", "", *_listed(lines)]) + "\n"


def _listed(lines: Sequence[str]) -> list[str]:
    return [*(f"- {render.markdown_text(line)}" for line in lines), ""]


def _short_answer(results: StudyResults) -> str:
    """How it scales, and what to change."""
    said = {each.question: each.words for each in answer(results)}
    words = " ".join(said[question] for question in SHORT if question in said) or next(iter(said.values()))
    return f"{SMOKE} {words}" if results.study.is_smoke else words


def _rows(studies: SideBySide) -> list[dict[str, KnobValue]]:
    """Those of each side's summary.csv with its name before them; a column that one side lacks is empty."""
    rows = [{"results": side.name, **each.row()} for side in studies.sides for each in side.results.summaries]
    columns: dict[str, None] = {}
    for row in sorted(rows, key=len, reverse=True):
        columns |= dict.fromkeys(row)
    return [{name: row.get(name) for name in columns} for row in rows]
