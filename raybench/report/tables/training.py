"""Tables of the training trials: several devices against one, epoch by epoch, and rank by rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.training import (
    Comparison,
    EpochMeans,
    ToTarget,
    TrainedGroup,
    TrainedRun,
    TrainingResults,
)
from raybench.report.format import MEBIBYTE, figures, interval, over_few, times_over_seeds
from raybench.report.parity_words import points_words
from raybench.report.tables.base import Column, Table, empty_table, known, make_table


@dataclass(frozen=True)
class _GroupRow:
    """A number of devices, and how it compares with one."""

    group: TrainedGroup
    comparison: Comparison | None


_GROUP_COLUMNS: list[Column[_GroupRow]] = [
    Column("devices", lambda row: str(row.group.world_size), right=True),
    Column("strategy", lambda row: row.group.strategy),
    Column("global batch", lambda row: f"{row.group.global_batch_size:,}", right=True),
    Column(
        "test accuracy",
        lambda row: known(row.group.final_accuracy, _percent, ""),
        right=True,
    ),
    Column(
        "difference, points",
        lambda row: known(row.comparison.difference_points, points_words, "") if row.comparison else "",
        right=True,
    ),
    Column("verdict", lambda row: str(row.comparison.parity) if row.comparison else "baseline"),
    Column("epochs", lambda row: _epochs_words(row.group), right=True),
    Column("best epoch", lambda row: known(row.group.best_epochs, _range, ""), right=True),
    Column("converged", lambda row: known(row.group.converged_epochs, _range, ""), right=True),
    Column("epoch, s", lambda row: _value(row.group.epoch_time_s), right=True),
    Column(
        "speed-up",
        lambda row: known(row.comparison.epoch_speedup, times_over_seeds, "") if row.comparison else "",
        right=True,
    ),
    Column(
        "all epochs, s",
        lambda row: _value(row.group.total_s),
        right=True,
    ),
    Column(
        "speed-up in all",
        lambda row: known(row.comparison.total_speedup, times_over_seeds, "") if row.comparison else "",
        right=True,
    ),
    Column("time to target, s", lambda row: _to_target(row.group, lambda target: target.time_s), right=True),
    Column("samples to target", lambda row: _to_target(row.group, lambda target: target.samples), right=True),
    Column("seeds", lambda row: str(len(row.group.runs)), right=True),
]


def training_table(results: StudyResults) -> Table:
    """Every number of devices against one, after equally many epochs."""
    training = results.training
    if training is None:
        return empty_table("Training to accuracy")
    rows = [_GroupRow(group, training.comparison(group)) for group in training.groups]
    setting = [Column[_GroupRow]("setting", lambda row: _setting(row.group))] if training.changed else []
    columns = [*_GROUP_COLUMNS[:2], *setting, *_GROUP_COLUMNS[2:]]
    return make_table("Training to accuracy", _training_caption(training), columns, rows)


_CHANGE_COLUMNS: list[Column[Comparison]] = [
    Column("devices", lambda each: str(each.group.world_size), right=True),
    Column("change", lambda each: each.group.changes),
    Column("global batch", lambda each: f"{each.group.global_batch_size:,}", right=True),
    Column("test accuracy", lambda each: known(each.group.final_accuracy, _percent, ""), right=True),
    Column("the default's", lambda each: known(each.base.final_accuracy, _percent, ""), right=True),
    Column("difference, points", lambda each: known(each.difference_points, points_words, ""), right=True),
    Column("verdict", lambda each: str(each.parity)),
    Column("epoch, s", lambda each: _value(each.group.epoch_time_s), right=True),
    Column("the default's epoch, s", lambda each: _value(each.base.epoch_time_s), right=True),
    Column("speed-up", lambda each: known(each.epoch_speedup, times_over_seeds, ""), right=True),
    Column("seeds", lambda each: str(each.num_seeds), right=True),
]


_STOPPED: Column[Comparison] = Column("stopped", lambda each: _stopped_words(each.group))


def _stopped_words(group: TrainedGroup) -> str:
    pruned = group.stopped_by
    return "" if pruned is None else f"after epoch {pruned.epoch}, against {pruned.compared - 1} others"


def changes_table(results: StudyResults) -> Table:
    """Each changed setting against the default, on equally many devices, after equally many epochs."""
    changed = results.training.changed if results.training else ()
    together = results.training is None or results.training.spec.settings == "default"
    title = "Training with all changes" if together else "Training with other settings"
    who = "all changes together" if together else "the other settings"
    caption = (
        f"The default and {who}, trained for equally many epochs on equally many devices: a "
        "change that is faster and learns less is no cure. Intervals are over seeds, paired by seed; "
        "fewer than three have none."
    )
    stopped = [_STOPPED] if any(each.group.stopped_by for each in changed) else []
    if stopped:
        caption += " What was stopped early is compared after its last epoch; it got no further seed."
    return make_table(title, caption, [*_CHANGE_COLUMNS, *stopped], changed)


def _epochs_words(group: TrainedGroup) -> str:
    return f"{group.num_epochs}{', stopped' if group.stopped_by else ''}"


def _setting(group: TrainedGroup) -> str:
    return group.changes or "the default"


def _training_caption(training: TrainingResults) -> str:
    spec = training.spec
    words = [
        "Accuracy after the last epoch, difference to one device paired by seed, 95% Student intervals over "
        "three seeds or more, on a scale that keeps them within bounds (logit, logarithm), none over fewer; "
        f"the same where the whole interval lies within ±{spec.tolerance_points:g} points. An epoch's "
        "time is training without evaluation, each run's first left out; all epochs: with evaluation. "
        f"Converged: the first epoch within {spec.tolerance_points:g} points of the best."
    ]
    if spec.target_accuracy is not None:
        words.append(f"Target: {spec.target_accuracy:.1%}, a mean over the seeds that reached it.")
    difference = training.weights_difference
    if difference is not None:
        words.append(f"Largest difference of a weight between two ranks at the end: {difference:.3g}.")
    skipped = sum(epoch.skipped_steps for run in training.runs for epoch in run.epochs)
    if skipped:
        steps = sum(epoch.steps for run in training.runs for epoch in run.epochs)
        words.append(f"The gradient scaler of fp16 left out {skipped:,} of {steps:,} steps.")
    kept = sorted(run.result.model for run in training.runs if run.result.model)
    if kept:
        words.append(f"Trained models: {', '.join(kept)}.")
    notes = {f"{name}: {why}" for run in training.runs for name, why in run.result.missing.items()}
    words += [f"Note: {note}." for note in sorted(notes)]
    return " ".join(words)


@dataclass(frozen=True)
class _EpochRow:
    """One epoch on one number of devices."""

    group: TrainedGroup
    means: EpochMeans


_EPOCH_COLUMNS: list[Column[_EpochRow]] = [
    Column("devices", lambda row: str(row.group.world_size), right=True),
    Column("strategy", lambda row: row.group.strategy),
    Column("epoch", lambda row: str(row.means.epoch), right=True),
    Column("learning rate", lambda row: f"{row.means.learning_rate:.4g}", right=True),
    Column("training loss", lambda row: known(row.means.train_loss, _value, ""), right=True),
    Column("training accuracy", lambda row: known(row.means.train_accuracy, _percent, ""), right=True),
    Column("test loss", lambda row: known(row.means.test_loss, _value, ""), right=True),
    Column("test accuracy", lambda row: known(row.means.test_accuracy, _percent, ""), right=True),
    Column("training, s", lambda row: known(row.means.train_s, _value, ""), right=True),
    Column("evaluation, s", lambda row: known(row.means.evaluation_s, _value, ""), right=True),
    Column("seeds", lambda row: str(row.means.num_seeds), right=True),
]


def epochs_table(results: StudyResults) -> Table:
    """Each epoch on each number of devices, mean over the seeds; epochs.csv has every seed."""
    caption = (
        "Mean over the seeds with 95% Student interval; of fewer than three none. Training loss and "
        "accuracy are of the samples as they were trained on, test values of every test sample once."
    )
    groups = results.training.groups if results.training else ()
    rows = [_EpochRow(group, means) for group in groups for means in group.epochs]
    several = any(group.changes for group in groups)
    setting = [Column[_EpochRow]("setting", lambda row: _setting(row.group))] if several else []
    return make_table("Epochs", caption, [*_EPOCH_COLUMNS[:2], *setting, *_EPOCH_COLUMNS[2:]], rows)


@dataclass(frozen=True)
class _RankRow:
    """One rank of one run."""

    group: TrainedGroup
    run: TrainedRun
    rank: int


_RANK_COLUMNS: list[Column[_RankRow]] = [
    Column("devices", lambda row: str(row.group.world_size), right=True),
    Column("strategy", lambda row: row.group.strategy),
    Column("global batch", lambda row: f"{row.group.global_batch_size:,}", right=True),
    Column("seed", lambda row: str(row.run.seed), right=True),
    Column("rank", lambda row: str(row.rank), right=True),
    Column("samples in an epoch", lambda row: f"{row.run.epochs[-1].samples[row.rank]:,}", right=True),
    Column("peak memory, MiB", lambda row: _memory(row.run.result.peak_memory_bytes, row.rank), right=True),
    Column(
        "device memory, MiB", lambda row: _memory(row.run.result.device_memory_bytes, row.rank), right=True
    ),
    Column("utilisation", lambda row: _utilization(row.run, row.rank), right=True),
]


def ranks_table(results: StudyResults) -> Table:
    """What each rank of each training trial has seen and used."""
    caption = (
        "Peak memory as torch counts it (GPUs), device memory as the device does, on CPUs the process. "
        "Utilisation while training: of a GPU its share of time with a kernel, of a CPU worker its cores'."
    )
    rows = [
        _RankRow(group, run, rank)
        for group in (results.training.groups if results.training else ())
        for run in group.runs
        for rank in range(group.world_size)
    ]
    return make_table("Ranks of the training trials", caption, _RANK_COLUMNS, rows)


def _memory(of_ranks_bytes: tuple[int, ...] | None, rank: int) -> str:
    return f"{of_ranks_bytes[rank] / MEBIBYTE:,.0f}" if of_ranks_bytes else ""


def _utilization(run: TrainedRun, rank: int) -> str:
    shares = run.result.device_utilization
    share = shares[rank] if rank < len(shares) else None
    return "" if share is None else f"{share:.0%}"


def _value(estimate: Estimate) -> str:
    return over_few(estimate, interval, figures(estimate.value))


def _percent(estimate: Estimate) -> str:
    value = f"{100 * estimate.value:.2f}%"
    return over_few(estimate, lambda each: f"{value} [{100 * each.low:.2f}, {100 * each.high:.2f}]", value)


def _range(epochs: tuple[int, int]) -> str:
    """One number, or the smallest and the largest over the seeds."""
    first, last = epochs
    return str(first) if first == last else f"{first} to {last}"


def _to_target(group: TrainedGroup, value: Callable[[ToTarget], float | None]) -> str:
    """The mean over the seeds that reached the target accuracy, and how many did if not all."""
    if group.to_target is None:
        return ""
    mean, reached = value(group.to_target), group.to_target.num_reached
    if mean is None:
        return "not reached"
    of_all = "" if reached == len(group.runs) else f" ({reached} of {len(group.runs)} seeds)"
    return f"{figures(mean)}{of_all}"
