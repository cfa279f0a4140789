"""Which plots and tables a report has, in which order; each is made once, whatever document it stands in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raybench.analysis.results import StudyResults
from raybench.report.plots.batches import batch_plot, batch_scaling_plot, draw_batch_scaling, draw_batches
from raybench.report.plots.configurations import configurations_plot, draw_configurations
from raybench.report.plots.drawn import DrawnPlot, drawn
from raybench.report.plots.scaling import draw_scaling, scaling_plot
from raybench.report.plots.search import draw_search
from raybench.report.plots.step_times import draw_step_times, step_time_plot
from raybench.report.plots.training import draw_epoch_times, draw_training, epoch_time_plot, training_plot
from raybench.report.plots.waterfall import draw_waterfall, waterfall_plot
from raybench.report.prediction import draw_prediction, prediction_plot, prediction_table, tradeoff_table
from raybench.report.published import published_table
from raybench.report.sections import Place
from raybench.report.tables.attribution import attribution_table
from raybench.report.tables.base import MOST_ROWS, Table
from raybench.report.tables.configurations import configurations_table
from raybench.report.tables.cost import cost_table
from raybench.report.tables.failures import failures_table
from raybench.report.tables.goodput import goodput_table
from raybench.report.tables.hiding import hiding_table
from raybench.report.tables.overlap import overlap_table
from raybench.report.tables.phases import phases_table
from raybench.report.tables.scaling import overheads_table, scaling_table
from raybench.report.tables.search import confirmation_table, largest_table, suggestions_table
from raybench.report.tables.strategies import compression_table, strategies_table
from raybench.report.tables.training import changes_table, epochs_table, ranks_table, training_table
from raybench.report.tables.trials import every_trial_table
from raybench.report.tables.verification import verification_table
from raybench.report.tables.waterfall import communication_table, waterfall_table
from raybench.report.tables.what_if import buckets_table, model_buckets_table


def draw_all(results: StudyResults, samples_dir: Path | None = None) -> list[DrawnPlot]:
    """Every plot that the records allow; step times from the parquet files of ``samples_dir``."""
    batch_scaling = "Throughput and speed-up for each batch"
    step_times = step_time_plot(results, samples_dir)
    return [
        *drawn("scaling", "Scaling", scaling_plot(results), draw_scaling),
        *drawn("prediction", "More devices", prediction_plot(results.outlook), draw_prediction),
        *drawn("batches", "Efficiency against batch", batch_plot(results), draw_batches),
        *drawn("batch_scaling", batch_scaling, batch_scaling_plot(results), draw_batch_scaling),
        *drawn("configurations", "Configurations", configurations_plot(results), draw_configurations),
        *drawn("waterfall", "Where the time goes", waterfall_plot(results), draw_waterfall),
        *drawn("step_times", "Distribution of step times", step_times, draw_step_times),
        *drawn("training", "Training", training_plot(results), draw_training),
        *drawn("search", "The search", results.search_history, draw_search),
        *drawn("epoch_times", "Epoch times", epoch_time_plot(results), draw_epoch_times),
    ]


@dataclass(frozen=True)
class ReportTables:
    """The tables of a report: those of each section, and those that stand elsewhere too."""

    places: Mapping[str, Place]  # by the sections' names, in order
    summary: Table  # of summary.tex: the scaling trials, else the suggestions
    configurations: Table  # of diagnosis.md
    failures: Table  # of diagnosis.md too
    trials: Table  # every one

    @property
    def documents(self) -> tuple[Table, ...]:
        """All of the sections that have rows."""
        every = (table for place in self.places.values() for table in (*place.tables, *place.folded))
        return tuple(table for table in every if table.rows)


def make_tables(results: StudyResults) -> ReportTables:
    """Every table of the study, made once, in the order in which the sections are read."""
    scaling = scaling_table(results)
    # those that no section shows are made where summary.tex has them
    suggestions = suggestions_table(results, MOST_ROWS if scaling.rows else None)
    failures = failures_table(results)
    places = {
        "failures": Place("What failed", tables=(failures,)),
        "time": Place(
            "Where the time goes",
            ("waterfall",),
            (waterfall_table(results), overlap_table(results)),
            (communication_table(results), overheads_table(results), phases_table(results)),
        ),
        "what-if": Place(
            "What if", tables=(model_buckets_table(results), buckets_table(results), hiding_table(results))
        ),
        "predictions": Place(
            "More devices",
            ("prediction",),
            (prediction_table(results.outlook, refusals=True), tradeoff_table(results.outlook)),
        ),
        "cost": Place("What it costs", tables=(cost_table(results),)),
        "scaling": Place("How it scales", ("scaling", "batches", "batch_scaling"), (scaling,)),
        "settings": Place(
            "What the settings change",
            ("configurations", "search"),
            (
                confirmation_table(results),
                verification_table(results),
                attribution_table(results),
                largest_table(results),
            ),
            (suggestions, strategies_table(results), compression_table(results)),
        ),
        "training": Place(
            "Training",
            ("training", "epoch_times"),
            (training_table(results), changes_table(results), goodput_table(results)),
            (epochs_table(results), ranks_table(results)),
        ),
        "published": Place("Published and measured", tables=(published_table(results),)),
        "steps": Place("Step times", ("step_times",)),
    }
    return ReportTables(
        places=places,
        summary=scaling if scaling.rows else suggestions,
        configurations=configurations_table(results),
        failures=failures,
        trials=every_trial_table(results),
    )
