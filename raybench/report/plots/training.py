"""Training trials: accuracy and loss over the epochs, epoch times over the devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.training import EpochMeans, TrainedGroup
from raybench.report.plots.axes import log2_axis, whole_numbers
from raybench.report.plots.drawing import (
    GREY,
    draw_lines,
    legend_below,
    legend_height,
    make_figure,
    n_words,
    write_title,
)
from raybench.report.plots.lines import MOST_CURVES, Line, fewest_and_most, make_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TrainingPlot:
    """Test accuracy (0 to 1) and test loss over the epochs, a line for each number of devices."""

    accuracy: tuple[Line, ...]  # empty where the workload has no metric
    loss: tuple[Line, ...]
    seeds: tuple[int, int]
    target: float | None  # accuracy


def training_plot(results: StudyResults) -> TrainingPlot | None:
    """What the test samples say, epoch by epoch; None where no training was evaluated after two epochs."""
    training = results.training
    if training is None:
        return None
    groups = training.groups[:MOST_CURVES]
    loss = tuple(_by_epoch(group, lambda means: means.test_loss) for group in groups)
    loss = tuple(line for line in loss if len(line.points) > 1)
    if not loss:
        return None
    accuracy = (_by_epoch(group, lambda means: means.test_accuracy) for group in groups)
    known_accuracy = tuple(line for line in accuracy if len(line.points) > 1)
    return TrainingPlot(known_accuracy, loss, fewest_and_most(loss), training.spec.target_accuracy)


def _by_epoch(group: TrainedGroup, value: Callable[[EpochMeans], Estimate | None]) -> Line:
    alone = group.world_size == 1
    words = [devices_words(group.world_size), "" if alone else group.strategy, group.changes]
    return make_line(
        ", ".join(filter(None, words)), [(float(means.epoch), value(means)) for means in group.epochs]
    )


def draw_training(plot: TrainingPlot) -> Figure:
    """Test accuracy and test loss over the epochs, side by side; the loss alone without accuracies."""
    panels = [("test accuracy (%)", plot.accuracy, 100.0)] if plot.accuracy else []
    panels.append(("test loss", plot.loss, 1.0))
    width = 4.6 * len(panels)
    figure, axes = make_figure(width, 3.7 + legend_height(width, plot.loss), columns=len(panels))
    for panel, (label, lines, scale) in zip(axes, panels, strict=True):
        draw_lines(panel, lines, scale, shift=0.04)
        whole_numbers(panel)
        panel.set_xlim(0.5, max(point.x for line in lines for point in line.points) + 0.5)
        panel.set_xlabel("epoch")
        panel.set_ylabel(label)
    if plot.accuracy:  # the interval of a few seeds may reach beyond what an accuracy can be
        low, high = axes[0].get_ylim()
        axes[0].set_ylim(max(low, 0.0), min(high, 100.0))
    if plot.accuracy and plot.target is not None:
        axes[0].axhline(100 * plot.target, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    target = f"\ndotted: the target of {plot.target:.1%}" if plot.accuracy and plot.target else ""
    write_title(figure, f"Training: {n_words(plot.seeds, 'seed', 'mean and 95% interval, ')}{target}")
    legend_below(figure, axes[0])
    return figure


@dataclass(frozen=True)
class EpochTimePlot:
    """Training time of an epoch in s over the world size, a line for each strategy, the base in each."""

    world_sizes: tuple[int, ...]
    lines: tuple[Line, ...]
    ideal: tuple[tuple[int, float], ...]
    seeds: tuple[int, int]  # fewest and most behind a point


def epoch_time_plot(results: StudyResults) -> EpochTimePlot | None:
    """Epoch times by world size; None where only one was trained at."""
    training = results.training
    if training is None or not training.comparisons:
        return None
    base, kinds = training.comparisons[0].base, dict[tuple[str, str], list[TrainedGroup]]()
    for each in training.comparisons:
        kinds.setdefault((each.group.strategy, each.group.changes), [each.base]).append(each.group)
    lines = tuple(
        make_line(", ".join(filter(None, kind)), [(group.world_size, group.epoch_time_s) for group in groups])
        for kind, groups in kinds.items()
    )
    sizes = tuple(sorted({group.world_size for group in training.groups}))
    start = base.mean_epoch_time_s
    return EpochTimePlot(sizes, lines, tuple((size, start / size) for size in sizes), fewest_and_most(lines))


def draw_epoch_times(plot: EpochTimePlot) -> Figure:
    """Training time of an epoch over the world size, with the ideal line from one device."""
    figure, (axes,) = make_figure(6.4, 3.7 + legend_height(6.4, plot.lines))
    ideal_x, ideal_y = zip(*plot.ideal, strict=True)
    axes.plot(ideal_x, ideal_y, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2, label="ideal")
    draw_lines(axes, plot.lines, log_x=True)
    log2_axis(axes, plot.world_sizes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("world size (devices)")
    axes.set_ylabel("training time of an epoch (s)")
    words = n_words(plot.seeds, "seed", "mean and 95% interval, ")
    write_title(figure, f"Epoch time, without evaluation: {words}")
    legend_below(figure, axes)
    return figure
