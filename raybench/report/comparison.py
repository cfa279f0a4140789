"""What ``compare`` prints and writes: several studies side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from raybench.analysis.comparison import SameTrial, Side, differences, headline_in_common, same_trials
from raybench.analysis.labels import devices_words
from raybench.analysis.other_load import load_of
from raybench.analysis.results import StudyResults
from raybench.analysis.summary import model_name
from raybench.records.csv_files import rows_csv
from raybench.report import render
from raybench.report.answer import Clause, answer
from raybench.report.format import factor, figures, plain_share, plus_minus, times
from raybench.report.method import began_words, hardware_words, method_words
from raybench.report.pages import Section, make_pages, template, write_files
from raybench.report.plot import MOST_CURVES, drawn
from raybench.report.sections.scaling import (
    DEVICES,
    EFFICIENCY,
    SETTING,
    SPEEDUP,
    STATUS,
    STATUS_WORDS,
    Row,
    draw_scaling,
    plotted_settings,
    scaling_rows,
)
from raybench.report.sections.training import draw_training, training_table
from raybench.report.sections.trials import failures_words
from raybench.report.sections.waterfall import draw_waterfall
from raybench.report.table import NONE, Column, Table, make_table, numbers, print_table, without_constant
from raybench.spec.knobs import KnobValue
from raybench.spec.user_input import received

PACKAGES = ("raybench", "torch", "ray")
SHORT = ("Note", "Scaling", "What to change", "Result")  # of an answer


def sides_table(sides: Sequence[Side]) -> Table:
    """What each study is, on what and when it was measured, and in what they differ: a column for each."""
    described = [dict(_description(side)) for side in sides]
    rows = [(name, *(side[name] for side in described)) for name in described[0]]
    named = {f"packages.{name}" for name in PACKAGES}
    differing = [(name, *map(_value, each)) for name, each in differences(sides).items() if name not in named]
    shown = [row for row in [*rows, *differing] if set(row[1:]) != {NONE}]
    columns = (Column[Any](""), *(Column[Any](side.name, stays=True) for side in sides))
    return Table("Side by side", "", columns, tuple(shown))


def _description(side: Side) -> Iterator[tuple[str, str]]:
    results, packages = side.results, side.environment.packages
    headline = results.headline
    visits = results.fit.visits(headline) if headline else ()
    load = load_of(headline.config, [each.steps for each in visits if each.steps]) if headline else None
    links = sorted({link for row in side.environment.gpu_links for link in row} - {"", "X"})
    yield "study", results.study.name
    yield "began", began_words(results.records) or NONE
    yield "other processes, cores", f"{load.taken:.2f} of {load.cores}" if load else NONE
    yield "model", model_name(headline.config.workload) if headline else NONE
    yield "devices", hardware_words(headline, side.environment.cpu_model) if headline else NONE
    yield "interconnect", ", ".join(links) or NONE
    yield ", ".join(PACKAGES), ", ".join(packages.get(name, "?") for name in PACKAGES)
    yield "setting", results.headline_label or NONE
    yield "best setting", results.best_label if results.best else NONE
    yield "failed", failures_words(results.failed) or NONE


def _value(value: object) -> str:
    """As TOML has it, a text without quotation marks."""
    if value is None:
        return NONE
    if isinstance(value, float):
        return figures(value)
    return value if isinstance(value, str) else received(value)


def settings_table(sides: Sequence[Side]) -> Table:
    """The settings that each side's report shows, on each of their numbers of devices."""
    rows = [row for side in sides for row in scaling_rows(side.results, side.name)]
    columns: list[Column[Row]] = [
        Column("results", lambda row: row.results, stays=True),
        DEVICES,
        SETTING,
        numbers("samples/s", lambda row: row.point.scaling.throughput_samples_per_s, plus_minus),
        SPEEDUP,
        EFFICIENCY,
        numbers("MFU", lambda row: row.mfu, plain_share),
        STATUS,
    ]
    caption = "95% intervals; speed-up and efficiency over one device, unless a base is named."
    return make_table("Settings", f"{caption} {STATUS_WORDS}", columns, rows)


def same_trials_table(sides: Sequence[Side]) -> Table:
    """The trials that each further side has in common with the first, with how much faster it is."""
    first, *others = sides
    rows = [(other.name, trial) for other in others for trial in same_trials(first, other)]
    said = dict.fromkeys(starts_words(trial) for _, trial in rows)
    caption = f"Ratios, with what starts of one program differ by in the intervals: {'; or '.join(said)}."
    columns: list[Column[tuple[str, SameTrial]]] = [
        Column("results", lambda row: row[0]),
        numbers("devices", lambda row: row[1].world_size),
        Column("setting", lambda row: row[1].label, stays=True),
        numbers("samples/s", lambda row: row[1].speed, times, stays=True),
        numbers("efficiency", lambda row: row[1].efficiency, times),
        Column("verdict", lambda row: _verdict(row[1]), stays=True),
    ]
    return make_table(f"The same trials, over {first.name}", caption, columns, rows)


def starts_words(trial: SameTrial) -> str:
    """In how many starts of the workers each side was measured."""
    first, other = trial.starts
    return "one start each" if first == other == 1 else f"{first} and {other} starts"


def _verdict(trial: SameTrial) -> str:
    if not trial.speed.excludes(1.0):
        return "no difference seen"
    return "faster" if trial.speed.value > 1 else "slower"


def comparison_tables(sides: Sequence[Side]) -> list[Table]:
    """All that have something to say, in order; trainings have no room on a terminal."""
    every = (same_trials_table, settings_table, sides_table)
    return [without_constant(table) for make in every if (table := make(sides)).rows]


def comparison_answer(sides: Sequence[Side]) -> list[Clause]:
    """Whether each further side is faster than the first, then what each found."""
    first, *others = sides
    compared = [Clause(f"{other.name} over {first.name}", _speed_words(first, other)) for other in others]
    return [*compared, *(Clause(side.name, _short_answer(side.results)) for side in sides)]


def _speed_words(first: Side, other: Side) -> str:
    found = headline_in_common(first, other)
    if found is None:
        where = f"the default of {first.name} at its largest world size"
        return f"Not compared: {other.name} has not measured {where}."
    where = f"{devices_words(found.world_size)}, {found.label}"
    return f"{factor(found.speed)} the samples/s on {where}: {_verdict(found)}."


def _short_answer(results: StudyResults) -> str:
    """How it scales, and what to change."""
    said = {each.question: each.words for each in answer(results)}
    short = [said[each] for each in SHORT if each in said]
    return " ".join(short if {*SHORT[1:]} & said.keys() else said.values())


def print_comparison(sides: Sequence[Side], console: Console) -> None:
    """The tables, then which side is faster."""
    for table in comparison_tables(sides):
        print_table(table, console)
    for each in comparison_answer(sides)[: len(sides) - 1]:
        console.print(Text(f"{each.question}: {each.words}", style="bold"))


def write_comparison(directory: Path, sides: Sequence[Side], command: str) -> list[Path]:
    """Write report.html and the other kinds of files of a report; their paths, ``report.html`` first.

    ``command`` makes them again. Raises ``OSError`` where ``directory`` cannot be written.
    """
    defaults = [each for side in sides for each in plotted_settings(side.results, side.name)][:MOST_CURVES]
    trained = (
        drawn(f"training_{n}", each.name, draw_training(each.results)) for n, each in enumerate(sides, 1)
    )
    settings, same, described = settings_table(sides), same_trials_table(sides), sides_table(sides)
    sections = {
        "same": Section(same.title, tables=(same,)),
        "settings": Section(
            settings.title,
            drawn("scaling", "The defaults over the devices", draw_scaling(defaults))
            + drawn("waterfall", "Where the time goes", draw_waterfall(defaults)),
            (settings,),
        ),
        "training": Section(
            "Training",
            tuple(itertools.chain(*trained)),
            (training_table({side.name: side.results for side in sides}),),
        ),
        "sides": Section(described.title, tables=(described,)),
    }
    name = " and ".join(side.name for side in sides)
    pages = make_pages(
        directory,
        {"results": [f"{side.name}: {side.environment.hostname}" for side in sides]},
        asked_by=command,
        again=command,
        title=name,
        box=comparison_answer(sides),
        sections=sections,
        method=[f"{side.name}: {method_words(side.results)[0]}" for side in sides],
    )
    summaries = {
        "summary.csv": rows_csv(_rows(sides)),
        "summary.tex": render.to_tex(without_constant(settings), name),
    }
    return write_files(directory, pages | summaries)


def _rows(sides: Sequence[Side]) -> list[dict[str, KnobValue]]:
    """Those of each side's summary.csv with its name before them; a column that one side lacks is empty."""
    rows = [{"results": side.name, **each.row()} for side in sides for each in side.results.summaries]
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def listed_markdown(title: str, lines: Sequence[str], tables: Sequence[Table] = ()) -> str:
    """What a comparison says as one piece of a page: its lines, then tables."""
    return template("listed.md.j2").render(title=title, lines=lines, tables=tables)
