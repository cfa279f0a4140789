"""Throughput and goodput of every measured batch."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import LEAST_VALUES
from raybench.analysis.training import Goodput, ScaleOverRuns
from raybench.report.format import figures, interval, plain_percent
from raybench.report.tables.base import Column, Table, devices, empty_table, make_table
from raybench.spec.counted import counted

KNOWN_WORDS = (
    "Intervals hold the noise scale's own error: over the seeds where three or more were trained, else what "
    "leaving out some of its measurements in turn changes."
)
UNKNOWN_WORDS = (
    "The noise scale was measured fewer than three times, so its error is not known: intervals are the "
    "throughput's."
)


def goodput_table(results: StudyResults) -> Table:
    """Throughput and goodput of every measured batch; empty where no noise scale was measured."""
    training = results.training
    if training is None or training.noise_scale is None:
        return empty_table("Goodput")
    columns: list[Column[Goodput]] = [
        Column("devices", lambda each: devices(each.record), right=True),
        Column("setting", lambda each: results.label(each.record)),
        Column("global batch", lambda each: f"{each.record.config.global_batch_size:,}", right=True),
        Column("throughput, samples/s", lambda each: interval(each.throughput_samples_per_s), right=True),
        Column("statistical efficiency", lambda each: plain_percent(each.statistical_efficiency), right=True),
        Column("goodput, samples/s", lambda each: interval(each.goodput_samples_per_s), right=True),
    ]
    scale = training.noise_scale
    known = all(each.statistical_efficiency.n >= LEAST_VALUES for each in training.goodput)
    caption = (
        f"Gradient noise scale: {figures(scale.first)} samples after the first epoch, {figures(scale.last)} "
        f"after the last (McCandlish et al. 2018, appendix A.1, smoothed; {_over_runs(scale)}). Statistical "
        "efficiency: progress of a sample over that of one at the reference batch of "
        f"{training.reference_batch:,}, (scale + reference) / (scale + batch), mean over trials and epochs "
        "(Qiao et al. 2021); it is above 100% for smaller batches; goodput: throughput times this. "
    )
    caption += KNOWN_WORDS if known else UNKNOWN_WORDS
    return make_table("Goodput", caption, columns, training.goodput)


def _over_runs(scale: ScaleOverRuns) -> str:
    """Of what the scale is told: one trial, or the middle of several and their ends."""
    if scale.num_runs == 1:
        return "of 1 training trial"
    return (
        f"the median of {counted(scale.num_runs, 'training trial')}, "
        f"from {figures(scale.least)} to {figures(scale.most)} after the last"
    )
