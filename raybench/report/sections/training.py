"""What trained models learn, how long it takes, and whether changes learn as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raybench.analysis.cost import TrainedTime
from raybench.analysis.labels import devices_words
from raybench.analysis.resolve import Facts
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import LEAST_VALUES, Estimate, inverse
from raybench.analysis.stats.verdict import Verdict
from raybench.analysis.training import (
    Comparison,
    EpochMeans,
    Goodput,
    ScaleOverRuns,
    ToTarget,
    TrainedGroup,
    TrainedRun,
    TrainingResults,
)
from raybench.report.format import (
    MEBIBYTE,
    figures,
    interval,
    over_few,
    plain_interval,
    plain_lasting,
    plain_percent,
    plain_times,
    seeds_words,
    times_over_seeds,
)
from raybench.report.plot import (
    GREY,
    MOST_CURVES,
    Line,
    draw_lines,
    fewest_and_most,
    in_lines,
    legend_below,
    legend_height,
    make_figure,
    make_line,
    n_words,
    whole_numbers,
    write_title,
)
from raybench.report.table import Column, Table, devices, empty_table, known, make_table
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def parity_words(comparison: Comparison) -> str:
    """The verdict on the accuracy with its numbers, and the speed-up of an epoch."""
    group = comparison.group
    return _parity_of(comparison, f"on {devices_words(group.world_size)} ({group.strategy}) and one")


def changed_words(comparison: Comparison) -> str:
    """The same of a changed setting against the default; of one that was stopped early as far as it came."""
    group, pruned = comparison.group, comparison.group.stopped_by
    words = _parity_of(comparison, f"with {group.changes} and without on {devices_words(group.world_size)}")
    return words if pruned is None else f"{words}, after epoch {pruned.epoch}, where it was stopped"


def _parity_of(comparison: Comparison, who: str) -> str:
    difference = comparison.difference_points
    speedup = comparison.epoch_speedup
    speed = f"; an epoch is {times_over_seeds(speedup)} as fast" if speedup else ""
    if difference is None:
        return f"there are no accuracies to compare {who}{speed}"
    numbers = f"{points_words(difference)} points, {seen_words(comparison.num_seeds, comparison.group)}"
    width = f"±{comparison.tolerance_points:g} points"
    seeds = comparison.seeds_to_tell
    tell = f"; {plural(seeds, 'seed')} would tell" if seeds else ""
    words = {
        Verdict.AS_GOOD: f"accuracy {who} is the same within {width} ({numbers})",
        Verdict.BETTER: f"accuracy {who} differs ({numbers})",
        Verdict.WORSE: f"accuracy {who} differs ({numbers})",
        Verdict.UNKNOWN: f"whether accuracy {who} is the same within {width} is not known yet "
        f"({numbers}{tell})",
    }
    return words[comparison.parity] + speed


def points_words(difference: Estimate) -> str:
    """A difference of accuracies in points, with its interval where there are seeds enough."""
    value = f"{difference.value:+.2f}"
    return over_few(difference, lambda each: f"{value} [{each.low:+.2f}, {each.high:+.2f}]", value)


def seen_words(num_seeds: int, group: TrainedGroup) -> str:
    """On how much a difference of accuracies rests: seeds, and test samples."""
    tested = f", {group.num_test_samples:,} test samples" if group.num_test_samples else ""
    return f"{seeds_words(num_seeds)}{tested}"


def trained_words(results: Facts, found: TrainedTime) -> str:
    """An epoch of one setting, and its speed-up, as trained and by its steps."""
    where = f"{results.label(found.record)} on {devices_words(found.record.config.world_size)}"
    words = f"an epoch of {where} took {plain_lasting(found.epoch_s)} as trained"
    seeds = "" if found.epoch_s.n > 2 else f" ({found.epoch_s.n} seed{'s' * (found.epoch_s.n > 1)})"
    words += f"{seeds}, {plain_lasting(found.by_steps_s)} by its steps"
    if found.speedup is None or found.speedup_by_steps is None:
        return words
    trained, by_steps = plain_times(found.speedup), plain_times(found.speedup_by_steps)
    return f"{words}; {trained} and {by_steps} as fast as one device"


@dataclass(frozen=True)
class _Metric:
    """One thing that was trained for or paid, of every group."""

    name: str
    cells: tuple[str, ...]
    change: str = ""  # from the first group to the last


MOST_GROUPS = 6  # columns


def metrics_table(results: StudyResults) -> Table:
    """What a write-up of a training shows: a metric a row, a column for one device and for each other way."""
    training, title = results.training, "One device and several"
    every = [each for each in training.groups if each.stopped_by is None] if training else []
    groups = every[:MOST_GROUPS]
    if training is None or len(groups) < 2:
        return empty_table(title)
    headings = [_named(each) for each in groups]
    columns: list[Column[_Metric]] = [
        Column("metric", lambda row: row.name, stays=True),
        *(_group_column(heading, place) for place, heading in enumerate(headings)),
    ]
    if len(groups) == 2:
        columns.append(Column("change", lambda row: row.change, right=True))
    shown = [each for each in _metrics(results, training, groups) if any(each.cells)]
    numbers = [len(each.runs) for each in groups]
    caption = (
        f"After {plural(groups[0].num_epochs, 'epoch')}, {n_words((min(numbers), max(numbers)), 'seed')}; "
        "times of an epoch are without evaluation. epochs.csv has all digits."
    )
    return make_table(title, caption, columns, shown)


def _named(group: TrainedGroup) -> str:
    words = [devices_words(group.world_size), "" if group.world_size == 1 else group.strategy, group.changes]
    return ", ".join(filter(None, words))


def _group_column(heading: str, place: int) -> Column[_Metric]:
    return Column(heading, lambda row: row.cells[place], right=True, stays=True)


def _metrics(
    results: StudyResults, training: TrainingResults, groups: Sequence[TrainedGroup]
) -> Iterator[_Metric]:
    compared = [training.comparison(each) for each in groups]
    samples = results.epoch_samples

    def of_all(
        name: str,
        value: Callable[[TrainedGroup], Estimate | None],
        words: Callable[[Estimate], str],
        kind: str,
    ) -> _Metric:
        values = [value(each) for each in groups]
        one, many = values[0], values[-1]
        improved = ""
        if one is not None and many is not None and one.value:
            change = many.value / one.value - 1
            improved = (
                f"{change:+.1%}" if kind == "ratio" else f"{100 * (many.value - one.value):+.2f} points"
            )
        return _Metric(name, tuple(known(each, words, "") for each in values), improved)

    def of_one(group: TrainedGroup, words: str, own: str = "1") -> str:
        return own if group.world_size == 1 else words

    yield of_all("time per epoch", lambda each: each.epoch_time_s, plain_lasting, "ratio")
    yield of_all("total time", lambda each: each.total_s, plain_lasting, "ratio")
    if samples:
        yield of_all(
            "samples/s", lambda each: inverse(each.epoch_time_s).scaled(samples), plain_interval, "ratio"
        )
    for name, speedups in (
        ("speed-up, epoch", [each.epoch_speedup if each else None for each in compared]),
        ("speed-up, total", [each.total_speedup if each else None for each in compared]),
    ):
        yield _Metric(
            name, tuple(map(of_one, groups, (known(each, times_over_seeds, "") for each in speedups)))
        )
    shares = [
        each.epoch_speedup.scaled(1 / each.group.world_size) if each and each.epoch_speedup else None
        for each in compared
    ]
    cells = [known(each, plain_percent, "") for each in shares]
    yield _Metric(
        "efficiency, epoch", tuple(of_one(*each, "100%") for each in zip(groups, cells, strict=True))
    )
    yield of_all("training accuracy", lambda each: each.epochs[-1].train_accuracy, _percent, "points")
    yield of_all("test accuracy", lambda each: each.final_accuracy, _percent, "points")
    yield of_all("best test accuracy", _best_accuracy, _percent, "points")
    yield of_all("training loss", lambda each: each.epochs[-1].train_loss, _value, "ratio")
    yield of_all("test loss", lambda each: each.epochs[-1].test_loss, _value, "ratio")
    steps = [each.runs[0].epochs[-1].steps for each in groups]
    yield _Metric("optimizer steps an epoch", tuple(f"{each:,}" for each in steps))


def _best_accuracy(group: TrainedGroup) -> Estimate | None:
    known_ones = [each.test_accuracy for each in group.epochs if each.test_accuracy is not None]
    return max(known_ones, key=lambda each: each.value, default=None)


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
    Column(
        "epochs", lambda row: f"{row.group.num_epochs}{', stopped' if row.group.stopped_by else ''}", True
    ),
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
        f"The default and {who}, trained for equally many epochs. Intervals are over seeds, paired by "
        "seed; fewer than three have none."
    )
    stopped = [_STOPPED] if any(each.group.stopped_by for each in changed) else []
    if stopped:
        caption += " What was stopped early is compared after its last epoch; it got no further seed."
    return make_table(title, caption, [*_CHANGE_COLUMNS, *stopped], changed)


def _setting(group: TrainedGroup) -> str:
    return group.changes or "the default"


def _training_caption(training: TrainingResults) -> str:
    spec = training.spec
    words = [
        "Accuracy after the last epoch, 95% intervals over three seeds or more; the same within "
        f"±{spec.tolerance_points:g} points. An epoch's time is without evaluation; all epochs: with it. "
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
    caption = "Mean over the seeds, 95% interval over three or more. epochs.csv has every seed."
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
        "Peak memory as torch counts it, device memory as the device does (on CPUs the process); utilisation "
        "while training."
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


KNOWN_WORDS = "Intervals hold the noise scale's own error."
UNKNOWN_WORDS = "Intervals are the throughput's: the noise scale was measured fewer than three times."


_GOODPUT: list[Column[Goodput]] = [
    Column("statistical efficiency", lambda each: plain_percent(each.statistical_efficiency), right=True),
    Column("goodput, samples/s", lambda each: interval(each.goodput_samples_per_s), right=True),
]
_BRACKET: list[Column[Goodput]] = [
    Column(
        "statistical efficiency, bounds",
        lambda each: f"{each.statistical_efficiency.low:.0%} to {each.statistical_efficiency.high:.0%}",
        right=True,
    ),
    Column(
        "goodput, samples/s, bounds",
        lambda each: (
            f"{figures(each.goodput_samples_per_s.low)} to {figures(each.goodput_samples_per_s.high)}"
        ),
        right=True,
    ),
]


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
        *(_GOODPUT if training.is_scaled else _BRACKET),
    ]
    scale = training.noise_scale
    known = all(each.statistical_efficiency.n >= LEAST_VALUES for each in training.goodput)
    caption = (
        f"Gradient noise scale: {figures(scale.first)} samples after the first epoch, {figures(scale.last)} "
        f"after the last (McCandlish et al. 2018, smoothed; {_over_runs(scale)}). Statistical efficiency: "
        f"(scale + {training.reference_batch:,}) / (scale + batch), Qiao et al. 2021; goodput: throughput "
        "times this. "
    )
    if not training.is_scaled:
        caption += "The learning rate did not grow with the batch, as the formula assumes: bounds. "
    caption += KNOWN_WORDS if known else UNKNOWN_WORDS
    return make_table("Goodput", caption, columns, training.goodput)


def _over_runs(scale: ScaleOverRuns) -> str:
    """Of what the scale is told: one trial, or the middle of several and their ends."""
    if scale.num_runs == 1:
        return "of 1 training trial"
    return (
        f"the median of {plural(scale.num_runs, 'training trial')}, "
        f"from {figures(scale.least)} to {figures(scale.most)} after the last"
    )


@dataclass(frozen=True)
class TrainingPlot:
    """Over the epochs test accuracy (0 to 1), test loss and time (s): a line for each number of devices."""

    title: str
    panels: tuple[tuple[str, float, tuple[Line, ...]], ...]  # what, how it is scaled, the lines
    target: float | None  # accuracy

    @property
    def seeds(self) -> tuple[int, int]:
        """Fewest and most behind a point."""
        return fewest_and_most([line for _, _, lines in self.panels for line in lines])


ACCURACY, LOSS, TIME = "test accuracy (%)", "test loss", "training time of an epoch (s)"


def training_plot(results: StudyResults) -> TrainingPlot | None:
    """What was trained, epoch by epoch; None where nothing was trained for two epochs."""
    training = results.training
    if training is None:
        return None
    groups = training.groups[:MOST_CURVES]
    values: tuple[tuple[str, float, Callable[[EpochMeans], Estimate | None]], ...] = (
        (ACCURACY, 100.0, lambda means: means.test_accuracy),
        (LOSS, 1.0, lambda means: means.test_loss),
        (TIME, 1.0, lambda means: means.train_s),
    )
    panels = [
        (
            name,
            scale,
            tuple(line for line in (_by_epoch(each, value) for each in groups) if len(line.points) > 1),
        )
        for name, scale, value in values
    ]
    shown = tuple(panel for panel in panels if panel[2])
    return TrainingPlot(_seen_words(training), shown, training.spec.target_accuracy) if shown else None


def _seen_words(training: TrainingResults) -> str:
    """What the last epoch says of more devices."""
    if not training.comparisons:
        return "Training, epoch by epoch"
    last = max(training.comparisons, key=lambda each: each.group.world_size)  # the first of these
    many, speedup = devices_words(last.group.world_size), last.epoch_speedup
    faster = f" train an epoch {speedup.value:.2f} times as fast as one" if speedup else ""
    here, one = last.group.final_accuracy, last.base.final_accuracy
    if here is None or one is None:
        return f"{many}{faster or ' and one, epoch by epoch'}"
    reached = f"{here.value:.1%} accuracy against {one.value:.1%}"
    return f"{many}{faster}: {reached}" if faster else f"{many} reach {reached}"


def _by_epoch(group: TrainedGroup, value: Callable[[EpochMeans], Estimate | None]) -> Line:
    return make_line(_named(group), [(float(means.epoch), value(means)) for means in group.epochs])


def draw_training(plot: TrainingPlot) -> Figure:
    """The panels side by side."""
    width = max(3.4 * len(plot.panels), 5.0)
    lines = plot.panels[0][2]
    figure, axes = make_figure(width, 3.5 + legend_height(width, lines), columns=len(plot.panels))
    for panel, (name, scale, shown) in zip(axes, plot.panels, strict=True):
        draw_lines(panel, shown, scale, shift=0.04)
        whole_numbers(panel)
        panel.set_xlim(0.5, max(point.x for line in shown for point in line.points) + 0.5)
        panel.set_xlabel("epoch")
        panel.set_ylabel(name)
        if name == ACCURACY:  # the interval of a few seeds may reach beyond what an accuracy can be
            low, high = panel.get_ylim()
            panel.set_ylim(max(low, 0.0), min(high, 100.0))
            if plot.target is not None:
                panel.axhline(100 * plot.target, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
        if name == TIME:
            panel.set_ylim(bottom=0)
    seeds = n_words(plot.seeds, "seed", "mean and 95% interval, ")
    target = f", dotted: the target of {plot.target:.1%}" if plot.target else ""
    write_title(figure, f"{in_lines(plot.title, 90)}\n{seeds}{target}")
    legend_below(figure, axes[0])
    return figure
