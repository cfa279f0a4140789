"""The report of measurements made elsewhere: its files, its answer in a line, what the terminal shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raybench.analysis.simulate.outlook import Outlook
from raybench.analysis.simulate.steps import MeasuredGroup, MeasuredScaling
from raybench.analysis.stats.statistics import Estimate
from raybench.report import render
from raybench.report.answer import Clause
from raybench.report.format import figures, interval, percent, sentence
from raybench.report.pages import Section, anew, make_pages, quoted, with_something, write_files
from raybench.report.prediction import (
    bring_words,
    measured_words,
    place_words,
    prediction_rows,
    prediction_table,
    print_table,
    title_of,
    tradeoff_table,
)
from raybench.report.table import Column, Table, known, make_table
from raybench.spec.knobs import KnobValue

if TYPE_CHECKING:
    from rich.console import Console


def imported_table(model: Outlook) -> Table:
    """One model's measured steps, the smallest batch first."""
    group = model.group
    batch = "global batch" if group.scaling == "strong" else "batch"
    columns: list[Column[MeasuredScaling]] = [
        Column("devices/ nodes", lambda row: place_words(row.shape), right=True),
        Column(batch, lambda row: f"{row.batch_size:,}", right=True),
        Column("step time, ms", lambda row: interval(row.step_time_s.scaled(1e3)), right=True),
        Column("samples/s", lambda row: figures(row.throughput_samples_per_s.value), right=True),
        Column("speed-up", lambda row: known(row.speedup, lambda each: f"{each.value:.2f}x"), right=True),
        Column("efficiency", lambda row: known(row.efficiency, percent), right=True),
        Column("status", lambda row: str(row.status) if row.status else ""),
    ]
    of = "step time" if group.scaling == "strong" else "throughput"
    caption = (
        f"Over the smallest world size that was measured with the same batch; the speed-up is that of the "
        f"{of}, efficiency is over the ratio of world sizes. Intervals stand where the file has those of the "
        "step times."
    )
    return make_table(title_of(model), caption, columns, model.scalings)


def imported_row(group: MeasuredGroup, each: MeasuredScaling) -> dict[str, KnobValue]:
    """A row of the summary: the columns of ``summary.csv`` that step times alone have."""
    shape, step_s, efficiency = each.shape, each.step_time_s, each.efficiency
    low_s, high_s = _ends(step_s)
    low, high = _ends(efficiency)
    return {
        "model": group.model,
        "scaling": group.scaling,
        "world_size": shape.world_size,
        "nodes": shape.nodes,
        "placement": "".join(map(str, shape.workers)) if max(shape.workers) < 10 else "",
        "batch_size": each.batch_size,
        "global_batch_size": each.question.samples,
        "gradient_accumulation": group.passes,
        "step_time_s": step_s.value,
        "step_time_low_s": low_s,
        "step_time_high_s": high_s,
        "throughput_samples_per_s": each.throughput_samples_per_s.value,
        "baseline_world_size": each.baseline_world_size,
        "speedup": each.speedup.value if each.speedup else None,
        "efficiency": efficiency.value if efficiency else None,
        "efficiency_low": low,
        "efficiency_high": high,
        "status": str(each.status) if each.status else None,
    }


def _ends(found: Estimate | None) -> tuple[float, float] | tuple[None, None]:
    """Of an interval, where there is one."""
    return (found.low, found.high) if found is not None and found.low < found.high else (None, None)


TIMES_ALONE = (
    "There are step times alone: they were not measured in the same rounds, so speed-ups and efficiencies "
    "hold whatever changed between the measurements."
)


def write_imported_report(directory: Path, files: Sequence[Path], models: Sequence[Outlook]) -> list[Path]:
    """Write all files of ``directory`` and return their paths, ``report.html`` first.

    ``files`` are what was read. Raises ``OSError`` where the directory cannot be written.
    """
    tables = tuple(table for model in models for table in _tables(model))
    scaling = f" --scaling {models[0].group.scaling}" if models else ""
    read, name = " ".join(map(quoted, files)), files[0].stem
    command = f"python -m raybench.study report {read}{scaling} --output {anew(directory)}"
    place = Section("More devices", tables=tables, sentence=" ".join(_sentences(models)))
    pages = make_pages(
        directory,
        {},
        asked_by=command,
        again=command,
        title=name,
        box=[Clause("Result", imported_answer(models))],
        sections=with_something({"predictions": place}, []),
        plots=[],
        method=[TIMES_ALONE],
    )
    rows = [imported_row(model.group, each) for model in models for each in model.scalings]
    contents = {
        **pages,
        "summary.csv": render.rows_csv(rows),
        "summary.tex": render.to_tex(imported_table(models[0]), name),
        "predictions.csv": render.rows_csv(prediction_rows(models)),
    }
    return write_files(directory, contents, [])


def print_imported(models: Sequence[Outlook], console: Console) -> None:
    """The measured steps of each model, then the answer."""
    from rich.text import Text

    for model in models:
        print_table(imported_table(model), console)
    console.print(Text(imported_answer(models), style="bold"))


def imported_answer(models: Sequence[Outlook]) -> str:
    """How each model scales: a line, its clauses separated by semicolons."""
    named = len(models) > 1
    clauses = []
    for model in models:
        name = f"{model.group.model}: " if named else ""
        clauses += [f"{name}{words}" for words in measured_words(model)]
    return "; ".join(clauses)


def _tables(model: Outlook) -> list[Table]:
    name, tables = model.group.model, [imported_table(model)]
    if model.answered:
        tables.append(prediction_table(model, f"{name}: predicted"))
    return [*tables, tradeoff_table(model, f"{name}: time and cost")]


def _sentences(models: Sequence[Outlook]) -> Iterator[str]:
    for model in models:
        name = f"{model.group.model}: " if len(models) > 1 else ""
        yield from (sentence(f"{name}{line}.") for line in bring_words(model))
