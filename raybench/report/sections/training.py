"""What trained models learn, how long it takes, and whether changes learn as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raybench.analysis.labels import devices_of
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import LEAST_VALUES, Estimate, inverse
from raybench.analysis.stats.verdict import Verdict
from raybench.analysis.training import Comparison, EpochMeans, TrainedGroup, TrainingResults
from raybench.report.format import (
    figures,
    interval,
    number_words,
    percent,
    plain_lasting,
    range_words,
    times,
    with_ends,
)
from raybench.report.plot import (
    GREY,
    MOST_CURVES,
    Line,
    draw_lines,
    legend_below,
    make_figure,
    make_line,
    write_title,
)
from raybench.report.table import NONE, Column, Table, known, make_table, numbers
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def parity_words(comparison: Comparison) -> str:
    """Whether several devices are as accurate as one: the verdict, or by how much they differ."""
    group = comparison.group
    return _parity_of(comparison, f"on {devices_of(group.config)} ({group.strategy})", "on one")


def changed_words(comparison: Comparison) -> str:
    """The same of a changed setting against the default."""
    return _parity_of(comparison, f"with {comparison.group.changes}", "of the default")


LEAST_SHOWN_POINTS = 0.005


def _parity_of(comparison: Comparison, where: str, other: str) -> str:
    difference = comparison.difference_points
    if difference is None:
        return f"no accuracy {where} can be compared with that {other}"
    if comparison.parity is Verdict.AS_GOOD:
        return f"accuracy {where} equals that {other} within {comparison.tolerance_points:g} points"
    if len(comparison.group.epochs) < comparison.group.runs[0].spec.epochs:  # one of them was stopped early
        where = f"{where} after {plural(len(comparison.group.epochs), 'epoch')}"
    side = "below" if difference.value < 0 else "above"
    found = f"accuracy {where} is {abs(difference.value):.2f} points {side} that {other}"
    if abs(difference.value) < LEAST_SHOWN_POINTS:
        found = f"accuracy {where} equals that {other}"
    if comparison.parity is not Verdict.UNKNOWN:
        return found
    seeds, noise = plural(comparison.num_seeds, "seed"), comparison.noise_points
    if difference.n >= LEAST_VALUES:
        tell = f" ({comparison.seeds_to_tell} would tell)" if comparison.seeds_to_tell else ""
        least = f"whether by more than {comparison.tolerance_points:g} points"
        return f"{found}, and {seeds} leave open {least}{tell}"
    if abs(difference.value) > noise:
        return f"{found} ({seeds}; three give an interval)"
    return f"{found}, within the noise of the test samples ({noise:.2f} points)"


MOST_GROUPS = 7  # columns of a table: with the metrics' names it stays narrow enough to paste


@dataclass(frozen=True, eq=False)
class _Trained:
    """A column or a line: one setting on one number of devices, and what it is compared with."""

    heading: str
    group: TrainedGroup
    over_one: Comparison | None  # several devices against one
    over_default: Comparison | None  # a changed setting against the default, on equally many devices
    epoch_samples: int | None
    is_between: bool  # one device and the most of its study


def _fitting(named: Mapping[str, StudyResults], most: int) -> tuple[list[_Trained], int]:
    """As many groups of all results as fit, in order, and how many do not.

    Numbers of devices between one and the most are left out first, then changes of the default, and of
    these one device first: the most devices are what a training is made for.
    """
    every = [
        _Trained(
            f"{name}: {named_group(group)}" if name else named_group(group),
            group,
            training.comparison(group),
            training.change(group),
            results.epoch_samples,
            1 < group.world_size < max(each.world_size for each in training.groups),
        )
        for name, results in named.items()
        if (training := results.training) is not None
        # the default on each number of devices first, what was stopped early last
        for group in sorted(training.groups, key=lambda one: (bool(one.changes), one.stopped_by is not None))
    ]
    kept = sorted(every, key=lambda each: (each.is_between, bool(each.group.changes), -each.group.world_size))
    return [each for each in every if each in kept[:most]], len(every[most:])


def training_table(named: Mapping[str, StudyResults]) -> Table:
    """What a write-up of a training shows: a metric a row, a column for one device and for each other way.

    ``named``: the results side by side, by the names that their columns begin with; of one alone "".
    """
    shown, left_out = _fitting(named, MOST_GROUPS)
    pair = shown[1].over_one if len(shown) == 2 else None
    rows = {metric: tuple(map(cell, shown)) for metric, cell in _METRICS.items()}
    if rows["best test accuracy"] == rows["test accuracy"]:
        del rows["best test accuracy"]
    if pair is not None:
        rows = {
            metric: (*cells, *_over_one(metric, pair))
            for metric, cells in rows.items()
            if metric not in _OVER_ONE
        }
    headings = [each.heading for each in shown] + (["speed-up", "change"] if pair else [])
    return Table(
        "One device and several",
        _caption(shown, left_out),
        (Column("metric", stays=True), *(Column(each, right=True, stays=True) for each in headings)),
        tuple((metric, *cells) for metric, cells in rows.items() if _says_something(metric, cells)),
    )


def named_group(group: TrainedGroup) -> str:
    """2 devices, ddp, batch 32."""
    words = [devices_of(group.config), "" if group.world_size == 1 else group.strategy, group.changes]
    return ", ".join(filter(None, words))


def _says_something(metric: str, cells: Sequence[str]) -> bool:
    different = set(cells) - {NONE}
    return len(different) > 1 if metric in _IF_THEY_DIFFER else bool(different)


def _rate(each: _Trained) -> Estimate | None:
    return inverse(each.group.epoch_time_s).scaled(each.epoch_samples) if each.epoch_samples else None


def _efficiency(each: _Trained) -> Estimate | None:
    speedup = each.over_one.epoch_speedup if each.over_one else None
    return speedup.scaled(1 / each.group.world_size) if speedup else None


def _speedup(comparison: Comparison | None, of: Callable[[Comparison], Estimate | None]) -> str:
    return known(of(comparison) if comparison else None, times)


def _points(comparison: Comparison | None) -> str:
    """By how much accuracy differs, and the verdict, or without one what chance alone makes."""
    difference = comparison.difference_points if comparison else None
    if comparison is None or difference is None:
        return NONE
    points = with_ends(difference, f"{difference.value:+.2f}", "{:+.2f}".format)
    if difference.n >= LEAST_VALUES:
        return f"{points} points, {comparison.parity}"
    return f"{points} points (noise: {comparison.noise_points:.2f} points)"


_METRICS: dict[str, Callable[[_Trained], str]] = {
    "global batch": lambda each: f"{each.group.config.global_batch_size:,}",
    "time per epoch": lambda each: plain_lasting(each.group.epoch_time_s),
    "total time": lambda each: plain_lasting(each.group.total_s),
    "samples/s": lambda each: known(_rate(each), interval),
    "speed-up, epoch": lambda each: _speedup(each.over_one, lambda one: one.epoch_speedup),
    "speed-up, total": lambda each: _speedup(each.over_one, lambda one: one.total_speedup),
    "efficiency, epoch": lambda each: known(_efficiency(each), percent),
    "speed-up over the default": lambda each: _speedup(each.over_default, lambda one: one.epoch_speedup),
    "training accuracy": lambda each: known(each.group.epochs[-1].train_accuracy, _percent),
    "test accuracy": lambda each: known(each.group.final_accuracy, _percent),
    "accuracy over one device": lambda each: _points(each.over_one),
    "accuracy over the default": lambda each: _points(each.over_default),
    "best test accuracy": lambda each: known(each.group.best_accuracy, _percent),
    "converged epoch": lambda each: (
        range_words([run.converged_epoch for run in each.group.runs if run.converged_epoch]) or NONE
    ),
    "training loss": lambda each: known(each.group.epochs[-1].train_loss, interval),
    "test loss": lambda each: known(each.group.epochs[-1].test_loss, interval),
    "time to target, s": lambda each: _to_target(each.group),
    "optimizer steps an epoch": lambda each: f"{each.group.runs[0].epochs[-1].steps:,}",
    "samples per device": lambda each: range_words(each.group.runs[0].epochs[-1].samples),
    "peak memory": lambda each: known(
        each.group.peak_memory_bytes, lambda most: f"{figures(most / 2**20)} MiB"
    ),
    "utilization": lambda each: known(each.group.utilization, percent),
    "epochs": lambda each: f"{len(each.group.epochs)}{', stopped' if each.group.stopped_by else ''}",
    "seeds": lambda each: str(len(each.group.runs)),
}
# Where there are one device and several, and nothing else, these rows are columns.
_OVER_ONE = ("speed-up, epoch", "speed-up, total", "accuracy over one device")


def _over_one(metric: str, pair: Comparison) -> tuple[str, str]:
    """Of several devices over one: the speed-up, and by how much a metric changes."""
    if metric == "test accuracy":
        return NONE, _points(pair)
    one, many = pair.base, pair.group
    accuracies = {
        "training accuracy": (one.epochs[-1].train_accuracy, many.epochs[-1].train_accuracy),
        "best test accuracy": (one.best_accuracy, many.best_accuracy),
    }
    before, after = accuracies.get(metric, (None, None))
    if before is not None and after is not None:
        return NONE, f"{100 * (after.value - before.value):+.2f} points"
    speedup = pair.total_speedup if metric == "total time" else pair.epoch_speedup
    if speedup is None or metric not in ("time per epoch", "total time", "samples/s"):
        return NONE, NONE
    ratio = speedup if metric == "samples/s" else inverse(speedup)
    return times(speedup), percent(ratio.plus(-1), sign=True)


_IF_THEY_DIFFER = {
    "global batch", "converged epoch", "optimizer steps an epoch", "epochs", "seeds"
}  # fmt: skip


def _caption(shown: Sequence[_Trained], left_out: int) -> str:
    """After how many epochs and seeds, what the words mean, and what went another way than asked."""
    if not shown:
        return ""
    runs, spec = [run for each in shown for run in each.group.runs], shown[0].group.runs[0].spec
    numbers = [len(each.group.runs) for each in shown]
    epochs = plural(max(len(each.group.epochs) for each in shown), "epoch")
    words = [f"After {epochs}, n = {number_words(numbers, 'seed')}; an epoch's time is without evaluation."]
    if max(len(each.group.epochs) for each in shown) > 1:
        words.append("Times of an epoch leave out the first, which warms up.")
        words.append(f"As good, and converged: within {spec.tolerance_points:g} points.")
    elif max(numbers) > 1:
        words.append(f"As good: within {spec.tolerance_points:g} points.")
    if spec.target_accuracy is not None:
        words.append(f"Target: {spec.target_accuracy:.1%}, a mean over the seeds that reached it.")
    if any(each.group.stopped_by for each in shown):
        words.append("What was stopped early is compared after its last epoch.")
    skipped = sum(epoch.skipped_steps for run in runs for epoch in run.epochs)
    if skipped:
        steps = sum(epoch.steps for run in runs for epoch in run.epochs)
        words.append(f"The gradient scaler of fp16 left out {skipped:,} of {steps:,} steps.")
    notes = {f"{name}: {why}" for run in runs for name, why in run.result.missing.items()}
    words += [f"Note: {note}." for note in sorted(notes)]
    if left_out:
        words.append(f"{plural(left_out, 'more setting')} in epochs.csv of the results directory.")
    return " ".join(words)


_EPOCH_COLUMNS: list[Column[tuple[str, EpochMeans]]] = [
    Column("trained on", lambda row: row[0]),
    numbers("epoch", lambda row: row[1].epoch),
    numbers("train loss", lambda row: row[1].train_loss, interval, stays=True),
    numbers("train accuracy", lambda row: row[1].train_accuracy, lambda share: _percent(share), stays=True),
    numbers("test loss", lambda row: row[1].test_loss, interval, stays=True),
    numbers("test accuracy", lambda row: row[1].test_accuracy, lambda share: _percent(share), stays=True),
    numbers("time", lambda row: row[1].train_s, plain_lasting, stays=True),
]


def epochs_table(results: StudyResults) -> Table:
    """Each epoch on each number of devices; of one epoch the table of the whole training says it."""
    shown, _ = _fitting({"": results}, MOST_GROUPS)
    if all(len(each.group.epochs) < 2 for each in shown):
        return Table("Epochs")
    rows = [(each.heading, means) for each in shown for means in each.group.epochs]
    columns = [each for each in _EPOCH_COLUMNS if any(each.cell(row) != NONE for row in rows)]
    caption = "Mean over the seeds, without evaluation; epochs.csv has every seed."
    return make_table("Epochs", caption, columns, rows)


def _percent(share: Estimate) -> str:
    return with_ends(share, f"{100 * share.value:.2f}%", lambda end: f"{100 * end:.2f}")


def _to_target(group: TrainedGroup) -> str:
    """The mean over the seeds that reached the target accuracy, and how many did if not all."""
    mean = group.time_to_target_s
    if group.runs[0].spec.target_accuracy is None:
        return NONE
    if mean is None:
        return "not reached"
    of_all = "" if mean.n == len(group.runs) else f" ({mean.n} of {len(group.runs)} seeds)"
    return f"{figures(mean.value)}{of_all}"


ACCURACY, LOSS = "test accuracy (%)", "test loss"


def _seen_words(training: TrainingResults) -> str:
    """What the last epoch says of more devices."""
    if not training.comparisons:
        return "Training, epoch by epoch"
    last = max(training.comparisons, key=lambda each: each.group.world_size)  # the first of these
    here, one, speedup = last.group.final_accuracy, last.base.final_accuracy, last.epoch_speedup
    said = [f"train an epoch {speedup.value:.2f} times as fast as one"] if speedup else []
    if here and one:
        said.append(f"reach {here.value:.1%} accuracy against {one.value:.1%}")
    many = devices_of(last.group.config)
    return f"{many} {' and '.join(said)}" if said else "Training, epoch by epoch"


def draw_training(results: StudyResults) -> Figure | None:
    """Test accuracy and loss over the epochs, side by side, a line for each number of devices.

    None where nothing was trained for two epochs.
    """
    from matplotlib.ticker import MaxNLocator

    training = results.training
    trained, _ = _fitting({"": results}, MOST_CURVES)

    def lines(value: Callable[[EpochMeans], Estimate | None]) -> list[Line]:
        every = (
            make_line(each.heading, [(float(means.epoch), value(means)) for means in each.group.epochs])
            for each in trained
        )
        return [line for line in every if len(line.points) > 1]

    accuracy, loss = lines(lambda means: means.test_accuracy), lines(lambda means: means.test_loss)
    panels = [each for each in ((ACCURACY, 100.0, accuracy), (LOSS, 1.0, loss)) if each[2]]
    if training is None or not panels:
        return None
    target = training.groups[0].runs[0].spec.target_accuracy
    figure, axes = make_figure(max(3.4 * len(panels), 5.0), 3.5, columns=len(panels))
    for panel, (name, scale, shown) in zip(axes, panels, strict=True):
        draw_lines(panel, shown, scale)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        panel.set_xlim(0.5, max(epoch for line in shown for epoch in line.points) + 0.5)
        panel.set_xlabel("epoch")
        panel.set_ylabel(name)
        if name == ACCURACY:  # the interval of a few seeds may reach beyond what an accuracy can be
            low, high = panel.get_ylim()
            panel.set_ylim(max(low, 0.0), min(high, 100.0))
            if target is not None:
                panel.axhline(100 * target, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    counts = [each.n for line in panels[0][2] for each in line.points.values()]
    seeds = f"mean, 95% interval from three seeds on, n = {number_words(counts, 'seed')}"
    dotted = f", dotted: the target of {target:.1%}" if target else ""
    write_title(figure, _seen_words(training), f"{seeds}{dotted}")
    legend_below(figure, axes[0])
    return figure
