"""Which plots and tables a report has, in which order; each is made once, whatever document it stands in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from raybench.analysis.results import StudyResults
from raybench.report.advice import when_to_use
from raybench.report.plot import DrawnPlot, drawn
from raybench.report.prediction import draw_prediction, prediction_plot, prediction_table, tradeoff_table
from raybench.report.sections.configurations import (
    attribution_table,
    configurations_table,
    verification_table,
)
from raybench.report.sections.cost import cost_table
from raybench.report.sections.overlap import buckets_table, hiding_table, model_buckets_table, overlap_table
from raybench.report.sections.published import published_table
from raybench.report.sections.scaling import (
    batch_plot,
    curve_table,
    draw_batches,
    draw_scaling,
    overheads_table,
    scaling_plot,
    scaling_table,
)
from raybench.report.sections.search import (
    compression_table,
    gains_table,
    largest_table,
    strategies_table,
    suggestions_table,
)
from raybench.report.sections.training import (
    changes_table,
    draw_training,
    epochs_table,
    goodput_table,
    metrics_table,
    ranks_table,
    training_plot,
    training_table,
)
from raybench.report.sections.trials import draw_step_times, every_trial_table, failures_table, step_time_plot
from raybench.report.sections.waterfall import (
    communication_table,
    draw_waterfall,
    phases_table,
    waterfall_plot,
    waterfall_table,
)
from raybench.report.table import MOST_ROWS, Table, first_rows, without_constant

# A section stands before the causes, below them, or is folded where they have been read.
Level = Literal["first", "shown", "folded"]


@dataclass(frozen=True)
class Section:
    """One heading with what stands under it: plots by their names; ``folded`` is for those who ask on."""

    title: str
    plots: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()
    level: Level = "shown"
    sentence: str = ""  # what to take from it


def with_something(sections: Mapping[str, Section], plots: Sequence[DrawnPlot]) -> dict[str, Section]:
    """The sections that have something to show, every plot in one of them; tables of a document's length."""
    drawn = {plot.name for plot in plots}
    assert drawn <= {name for each in sections.values() for name in each.plots}
    found = {
        name: replace(
            each,
            plots=tuple(plot for plot in each.plots if plot in drawn),
            tables=_shown(each.tables),
            folded=_shown(each.folded),
        )
        for name, each in sections.items()
    }
    return {name: each for name, each in found.items() if each.plots or each.tables or each.folded}


def _shown(tables: Sequence[Table]) -> tuple[Table, ...]:
    return tuple(without_constant(first_rows(table, MOST_ROWS)) for table in tables if table.rows)


def draw_all(results: StudyResults, samples_dir: Path | None = None) -> list[DrawnPlot]:
    """Every plot that the records allow; step times from the parquet files of ``samples_dir``."""
    step_times = step_time_plot(results, samples_dir)
    return [
        *drawn("scaling", "Scaling", scaling_plot(results), draw_scaling),
        *drawn("prediction", "More devices", prediction_plot(results.outlook), draw_prediction),
        *drawn("batches", "Efficiency against batch", batch_plot(results), draw_batches),
        *drawn("waterfall", "Where the time goes", waterfall_plot(results), draw_waterfall),
        *drawn("step_times", "Distribution of step times", step_times, draw_step_times),
        *drawn("training", "Training", training_plot(results), draw_training),
    ]


@dataclass(frozen=True)
class ReportTables:
    """The tables of a report: those of each section, and those that stand elsewhere too."""

    sections: Mapping[str, Section]  # by their anchors, in order
    summary: Table  # of summary.tex: the scaling trials, else the suggestions
    configurations: Table  # of diagnosis.md
    failures: Table  # of diagnosis.md too
    trials: Table  # every one


def make_tables(results: StudyResults) -> ReportTables:
    """Every table of the study, made once, in the order in which the sections are read."""
    scaling = scaling_table(results)
    # those that no section shows are made where summary.tex has them
    suggestions = suggestions_table(results, MOST_ROWS if scaling.rows else None)
    failures = failures_table(results)
    sections = {
        "failures": Section("What failed", tables=(failures,), level="first"),
        "scaling": Section("How it scales", ("scaling", "waterfall"), (scaling,), level="first"),
        "predictions": Section(
            "More devices",
            ("prediction",),
            (prediction_table(results.outlook, refusals=True), tradeoff_table(results.outlook)),
        ),
        "cost": Section(
            "What it costs", tables=(cost_table(results),), sentence=when_to_use(results).strip()
        ),
        "training": Section(
            "Training",
            ("training",),
            (metrics_table(results), changes_table(results)),
            (
                epochs_table(results),
                training_table(results),
                goodput_table(results),
                ranks_table(results),
            ),
        ),
        "published": Section("Published and measured", tables=(published_table(results),)),
        "parts": Section(
            "The parts of a step",
            tables=(
                waterfall_table(results),
                curve_table(results),
                overlap_table(results),
                communication_table(results),
                overheads_table(results),
                phases_table(results),
            ),
            level="folded",
        ),
        "batches": Section("Batches", ("batches",), level="folded"),
        "settings": Section(
            "What the settings change",
            (),
            (
                gains_table(results),
                verification_table(results),
                attribution_table(results),
                largest_table(results),
            ),
            (suggestions, strategies_table(results), compression_table(results)),
            level="folded",
        ),
        "what-if": Section(
            "What if",
            tables=(model_buckets_table(results), buckets_table(results), hiding_table(results)),
            level="folded",
        ),
        "steps": Section("Step times", ("step_times",), level="folded"),
    }
    return ReportTables(
        sections=sections,
        summary=scaling if scaling.rows else suggestions,
        configurations=configurations_table(results),
        failures=failures,
        trials=every_trial_table(results),
    )
