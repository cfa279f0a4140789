"""Which plots and tables a report has, in which order; each is made once, whatever document it stands in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from raybench.analysis.results import StudyResults
from raybench.report.plots.batches import batch_plot, batch_scaling_plot, draw_batch_scaling, draw_batches
from raybench.report.plots.configurations import configurations_plot, draw_configurations
from raybench.report.plots.drawn import DrawnPlot, drawn
from raybench.report.plots.scaling import draw_scaling, scaling_plot
from raybench.report.plots.step_times import draw_step_times, step_time_plot
from raybench.report.plots.training import draw_epoch_times, draw_training, epoch_time_plot, training_plot
from raybench.report.plots.waterfall import draw_waterfall, waterfall_plot
from raybench.report.tables.attribution import attribution_table
from raybench.report.tables.base import Table
from raybench.report.tables.configurations import configurations_table
from raybench.report.tables.cost import cost_table
from raybench.report.tables.failures import failures_table
from raybench.report.tables.goodput import goodput_table
from raybench.report.tables.hiding import hiding_table
from raybench.report.tables.overlap import overlap_table
from raybench.report.tables.phases import phases_table
from raybench.report.tables.published import contradictions_table, departures_table, published_table
from raybench.report.tables.scaling import overheads_table, scaling_table
from raybench.report.tables.search import confirmation_table, largest_table, suggestions_table
from raybench.report.tables.strategies import compression_table, strategies_table
from raybench.report.tables.training import changes_table, epochs_table, ranks_table, training_table
from raybench.report.tables.verification import verification_table
from raybench.report.tables.waterfall import communication_table, waterfall_table


def draw_all(results: StudyResults, samples_dir: Path | None = None) -> list[DrawnPlot]:
    """Every plot that the records allow; step times from the parquet files of ``samples_dir``."""
    batch_scaling = "Throughput and speed-up for each batch"
    step_times = step_time_plot(results, samples_dir)
    return [
        *drawn("scaling", "Scaling", scaling_plot(results), draw_scaling),
        *drawn("batches", "Efficiency against batch", batch_plot(results), draw_batches),
        *drawn("batch_scaling", batch_scaling, batch_scaling_plot(results), draw_batch_scaling),
        *drawn("configurations", "Configurations", configurations_plot(results), draw_configurations),
        *drawn("waterfall", "Where the time goes", waterfall_plot(results), draw_waterfall),
        *drawn("step_times", "Distribution of step times", step_times, draw_step_times),
        *drawn("training", "Training", training_plot(results), draw_training),
        *drawn("epoch_times", "Epoch times", epoch_time_plot(results), draw_epoch_times),
    ]


@dataclass(frozen=True)
class ReportTables:
    """The tables of a report: all that the documents show, and those that stand elsewhere too."""

    documents: tuple[Table, ...]  # with rows, in order
    summary: Table  # of summary.tex: the scaling trials, else the suggestions
    configurations: Table  # of diagnosis.md
    failures: Table  # of diagnosis.md too


def make_tables(results: StudyResults) -> ReportTables:
    """Every table of the study, made once."""
    scaling, suggestions = scaling_table(results), suggestions_table(results)
    failures = failures_table(results)
    in_documents = (
        scaling,
        strategies_table(results),
        compression_table(results),
        waterfall_table(results),
        communication_table(results),
        overlap_table(results),
        overheads_table(results),
        hiding_table(results),
        phases_table(results),
        cost_table(results),
        attribution_table(results),
        confirmation_table(results),
        verification_table(results),
        suggestions,
        published_table(results),
        departures_table(results),
        contradictions_table(results),
        largest_table(results),
        training_table(results),
        changes_table(results),
        epochs_table(results),
        goodput_table(results),
        ranks_table(results),
        failures,
    )
    return ReportTables(
        documents=tuple(table for table in in_documents if table.rows),
        summary=scaling if scaling.rows else suggestions,
        configurations=configurations_table(results),
        failures=failures,
    )
