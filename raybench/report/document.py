"""The files of ``report/``: one HTML file that needs nothing else, Markdown, tables, plots, diagnosis."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raybench.analysis.estimates.stopping import asked_half_width
from raybench.analysis.results import StudyResults, analyse
from raybench.records.record import TrialRecord
from raybench.report import formats
from raybench.report.answer import answer_of
from raybench.report.diagnosis import diagnosis_markdown, grouped
from raybench.report.plots import drawing
from raybench.report.plots import figures as plots
from raybench.report.plots import values as plot_values
from raybench.report.tables import published as published_tables
from raybench.report.tables import study as study_tables
from raybench.report.tables import tables
from raybench.report.tables import training as training_tables
from raybench.spec.study import Study

if TYPE_CHECKING:
    import jinja2
    from matplotlib.figure import Figure

STOP_WORDS = {
    "half_width": "reached the half-width asked",
    "max_seconds": "ended by measure.max_seconds",
    "steps": "fixed number of rounds",
}


@dataclass(frozen=True)
class DrawnPlot:
    """One plot, drawn."""

    name: str
    title: str
    png: bytes
    svg: bytes

    @property
    def svg_base64(self) -> str:
        """For a data URI: an image of its own, so that ids of two plots do not meet."""
        return base64.b64encode(self.svg).decode()


def write_report(
    directory: Path,
    study: Study,
    records: Sequence[TrialRecord],
    environment: Mapping[str, Any],
    samples_dir: Path | None = None,
    results: StudyResults | None = None,
) -> list[Path]:
    """Write all files of ``directory/report`` and return their paths, ``report.html`` first.

    ``directory`` is the results directory, ``environment`` what environment.json holds. Every file is
    whole at any moment: it is written beside its place and moved there. ``results`` saves the analysis
    where the caller has it already. Raises ``OSError`` where the directory cannot be written.
    """
    results = results or analyse(study, records)
    drawn = draw_all(results, samples_dir)
    contents: dict[str, str | bytes] = {
        "report.html": report_html(results, drawn, environment, directory),
        "report.md": report_markdown(results, drawn, environment, directory),
        "diagnosis.md": diagnosis_markdown(results),
        "summary.csv": formats.summary_csv(results.summaries),
        "summary.tex": formats.summary_tex(results),
    }
    for each in drawn:
        contents[f"plots/{each.name}.png"] = each.png
        contents[f"plots/{each.name}.svg"] = each.svg
    report = directory / "report"
    _remove_old_plots(report / "plots", set(contents))
    return [_write(report / name, content) for name, content in contents.items()]


def draw_all(results: StudyResults, samples_dir: Path | None = None) -> list[DrawnPlot]:
    """Every plot that the records allow."""
    values: list[tuple[str, str, Any, Callable[[Any], Figure]]] = [
        ("scaling", "Scaling", plot_values.scaling_plot(results), plots.draw_scaling),
        ("batches", "Efficiency against batch", plot_values.batch_plot(results), plots.draw_batches),
        (
            "batch_scaling",
            "Throughput and speed-up for each batch",
            plot_values.batch_scaling_plot(results),
            plots.draw_batch_scaling,
        ),
        (
            "configurations",
            "Configurations",
            plot_values.configurations_plot(results),
            plots.draw_configurations,
        ),
        ("waterfall", "Where the time goes", plot_values.waterfall_plot(results), plots.draw_waterfall),
        (
            "step_times",
            "Distribution of step times",
            plot_values.step_time_plot(results, samples_dir),
            plots.draw_step_times,
        ),
        ("training", "Training", plot_values.training_plot(results), plots.draw_training),
        ("epoch_times", "Epoch times", plot_values.epoch_time_plot(results), plots.draw_epoch_times),
    ]
    drawn = []
    for name, title, value, draw in values:
        if value is not None:
            figure = draw(value)
            drawn.append(DrawnPlot(name, title, drawing.to_png(figure), drawing.to_svg(figure)))
    return drawn


def report_html(
    results: StudyResults, drawn: Sequence[DrawnPlot], environment: Mapping[str, Any], directory: Path
) -> str:
    """``report.html``: self-contained, no script, no network."""
    return _template("template.html.j2").render(**_context(results, drawn, environment, directory))


def report_markdown(
    results: StudyResults, drawn: Sequence[DrawnPlot], environment: Mapping[str, Any], directory: Path
) -> str:
    """``report.md``: the same words and tables; plots by their files."""
    return _template("template.md.j2").render(**_context(results, drawn, environment, directory))


def _context(
    results: StudyResults, drawn: Sequence[DrawnPlot], environment: Mapping[str, Any], directory: Path
) -> dict[str, Any]:
    shown = [
        tables.scaling_table(results),
        tables.strategies_table(results),
        tables.compression_table(results),
        tables.waterfall_table(results),
        tables.communication_table(results),
        study_tables.overheads_table(results),
        study_tables.hiding_table(results),
        study_tables.phases_table(results),
        study_tables.cost_table(results),
        study_tables.attribution_table(results),
        tables.confirmation_table(results),
        tables.suggestions_table(results),
        published_tables.published_table(results),
        published_tables.contradictions_table(results),
        tables.largest_table(results),
        training_tables.training_table(results),
        training_tables.epochs_table(results),
        training_tables.goodput_table(results),
        training_tables.ranks_table(results),
        tables.failures_table(results),
    ]
    return {
        "name": results.study.name,
        "answer": answer_of(results),
        "plots": drawn,
        "tables": [table for table in shown if table.rows],
        "findings": list(grouped(results.findings)),
        "environment": list(_flat(environment)),
        "method": method_words(results),
        "command": f"python -m raybench.study scaling {_quoted(directory / 'study.toml')}",
        "again": f"python -m raybench.study report {_quoted(directory)}",
        "markdown": formats.to_markdown,
    }


def method_words(results: StudyResults) -> list[str]:
    """How it was measured, in sentences."""
    measured = [record.steps for record in results.measured if record.steps is not None]
    stepped = sum(record.request.kind != "training" for record in results.records)
    if not measured:
        return [f"{stepped} trials were tried, none completed."]
    numbers = [len(each.rounds) for each in measured]
    first = results.measured[0].request
    assert first.kind == "steps"  # it is measured
    asked = asked_half_width(first.measure, first.config.device)
    stops = {
        words: count
        for stop, words in STOP_WORDS.items()
        if (count := sum(each.stopped_by == stop for each in measured))
    }
    scaling = results.study.scaling.mode
    return [
        f"{len(results.measured)} of {stepped} trials are complete, with {_range(numbers)} "
        "rounds each. In each round every variant of the step runs one block of steps, in "
        "shuffled order; the first steps of a block are thrown away.",
        "A ratio is made within each round, so that drift cancels; over the rounds the 10% trimmed mean of "
        "its logarithm is taken, with its 95% Student-t interval (Tukey and McLaughlin 1963). n counts "
        "rounds.",
        f"Rounds went on until the relative half-width was {asked:.1%} or the trial's time was spent: "
        + ", ".join(f"{words} in {count}" for words, count in stops.items())
        + ".",
        f"{scaling.capitalize()} scaling: "
        + (
            "the batch per device stays the same, speed-up = throughput(n) / throughput(1)"
            if scaling == "weak"
            else "the global batch stays the same, speed-up = step time(1) / step time(n)"
        )
        + "; efficiency = speed-up / n. One device runs the bare model, without DDP, with the same batch, "
        "precision and accumulation.",
    ]


def _range(numbers: Sequence[int]) -> str:
    few, many = min(numbers), max(numbers)
    return str(few) if few == many else f"{few} to {many}"


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and values of nested data, without what is unknown."""
    for name, inner in value.items():
        dotted = f"{prefix}{name}"
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{dotted}.")
        elif isinstance(inner, list | tuple) and any(isinstance(each, Mapping) for each in inner):
            for index, each in enumerate(inner):
                yield from _flat(each if isinstance(each, Mapping) else {"": each}, f"{dotted}.{index}.")
        elif inner not in (None, "", [], ()):
            yield dotted.removesuffix("_bytes").replace("_", " "), _environment_words(str(name), inner)


def _environment_words(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int | float):
        return f"{value / 2**30:,.1f} GiB"
    if isinstance(value, list | tuple):
        return ", ".join(str(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


@cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=name.endswith("html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name)


def _remove_old_plots(folder: Path, written: set[str]) -> None:
    """Plots of an earlier report that this one does not have would be taken for its own."""
    for path in folder.glob("*") if folder.is_dir() else ():
        if path.suffix in (".png", ".svg") and f"plots/{path.name}" not in written:
            path.unlink()


def _write(path: Path, content: str | bytes) -> Path:
    """Write beside the place, then move: a reader finds the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(unfinished).chmod(0o644)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
    return path
