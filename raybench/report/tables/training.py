"""Tables of the training trials: epoch by epoch, several devices against one, goodput."""

from __future__ import annotations

from collections.abc import Callable

from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.results import StudyResults
from raybench.analysis.training import Comparison, TrainedGroup, TrainedRun, over_seeds
from raybench.report.tables.tables import Column, Table
from raybench.report.wording import figures, interval, times


def epochs_table(results: StudyResults) -> Table:
    """Each epoch on each number of devices, mean over the seeds; epochs.csv has every seed."""
    rows: list[tuple[str, ...]] = []
    for group in results.training.groups if results.training else ():
        rows += [_epoch_row(group, index) for index in range(group.num_epochs)]
    columns = (
        Column("devices", True),
        Column("strategy"),
        Column("epoch", True),
        Column("learning rate", True),
        Column("training loss", True),
        Column("training accuracy", True),
        Column("test loss", True),
        Column("test accuracy", True),
        Column("training, s", True),
        Column("evaluation, s", True),
        Column("seeds", True),
    )
    caption = (
        "Mean over the seeds with 95% Student interval; of one seed the value itself. Training loss and "
        "accuracy are of the samples as they were trained on, test values of every test sample once."
    )
    return Table("Epochs", caption, columns, tuple(rows))


def _epoch_row(group: TrainedGroup, index: int) -> tuple[str, ...]:
    epochs = [run.epochs[index] for run in group.runs]

    def mean(name: str) -> Estimate | None:
        return over_seeds(getattr(epoch, name) for epoch in epochs)

    return (
        str(group.world_size),
        group.strategy,
        str(epochs[0].epoch),
        f"{epochs[0].learning_rate:.4g}",
        _value(mean("train_loss")),
        _percent(mean("train_accuracy")),
        _value(mean("test_loss")),
        _percent(mean("test_accuracy")),
        _value(mean("train_s")),
        _value(mean("evaluation_s")),
        str(len(epochs)),
    )


def training_table(results: StudyResults) -> Table:
    """Every number of devices against one, after equally many epochs."""
    rows = []
    found = results.training
    against = {id(each.group): each for each in found.comparisons} if found else {}
    for group in found.groups if found else ():
        rows.append(_group_row(group, against.get(id(group))))
    columns = (
        Column("devices", True),
        Column("strategy"),
        Column("global batch", True),
        Column("test accuracy", True),
        Column("difference, points", True),
        Column("verdict"),
        Column("best epoch", True),
        Column("converged", True),
        Column("epoch, s", True),
        Column("speed-up", True),
        Column("all epochs, s", True),
        Column("speed-up in all", True),
        Column("time to target, s", True),
        Column("samples to target", True),
        Column("seeds", True),
    )
    return Table("Training to accuracy", _training_caption(results), columns, tuple(rows))


def _training_caption(results: StudyResults) -> str:
    found = results.training
    if found is None:
        return ""
    spec = found.groups[0].runs[0].spec
    words = [
        "Accuracy after the last epoch, difference to one device paired by seed, 95% Student intervals over "
        f"seeds; the same where the whole interval lies within ±{spec.tolerance_points:g} points. An epoch's "
        "time is training without evaluation, each run's first left out; all epochs: with evaluation. "
        f"Converged: the first epoch within {spec.tolerance_points:g} points of the best."
    ]
    if spec.target_accuracy is not None:
        words.append(f"Target: {spec.target_accuracy:.1%}, a mean over the seeds that reached it.")
    runs = [run for group in found.groups for run in group.runs]
    differences = [d for run in runs if (d := run.result.weights_difference) is not None]
    if differences:
        words.append(f"Largest difference of a weight between two ranks at the end: {max(differences):.3g}.")
    missing = {f"{name}: {why}" for run in runs for name, why in run.result.missing.items()}
    words += [f"Note: {note}." for note in sorted(missing)]
    return " ".join(words)


def _group_row(group: TrainedGroup, compared: Comparison | None) -> tuple[str, ...]:
    time_s = group.epoch_time_s
    only_s = group.mean(lambda run: run.epoch_time_s)
    return (
        str(group.world_size),
        group.strategy,
        f"{group.global_batch_size:,}",
        _percent(group.over_seeds(lambda run: run.final_accuracy)),
        _points(compared.difference_points) if compared else "",
        str(compared.parity) if compared else "baseline",
        _several(group, lambda run: run.best_epoch),
        _several(group, lambda run: run.converged_epoch),
        interval(time_s) if time_s else figures(only_s or 0.0),
        times(compared.epoch_speedup) if compared and compared.epoch_speedup else "",
        _value(group.over_seeds(lambda run: run.total_s)),
        _times(compared.total_speedup) if compared else "",
        _mean(group, lambda run: run.time_to_target_s),
        _mean(group, lambda run: run.samples_to_target),
        str(len(group.runs)),
    )


def ranks_table(results: StudyResults) -> Table:
    """What each rank of each training trial has seen and used."""
    rows = []
    for group in results.training.groups if results.training else ():
        for run in group.runs:
            rows += [_rank_row(group, run, rank) for rank in range(group.world_size)]
    columns = (
        Column("devices", True),
        Column("strategy"),
        Column("seed", True),
        Column("rank", True),
        Column("samples in an epoch", True),
        Column("peak memory, MiB", True),
        Column("device memory, MiB", True),
        Column("utilisation", True),
    )
    caption = (
        "Peak memory as torch counts it (GPUs), device memory as the device does, on CPUs the process. "
        "Utilisation while training: of a GPU its share of time with a kernel, of a CPU worker its cores'."
    )
    return Table("Ranks of the training trials", caption, columns, tuple(rows))


def _rank_row(group: TrainedGroup, run: TrainedRun, rank: int) -> tuple[str, ...]:
    result = run.result
    peak, device = result.peak_memory_bytes, result.device_memory_bytes
    used = result.device_utilization[rank] if rank < len(result.device_utilization) else None
    return (
        str(group.world_size),
        group.strategy,
        str(run.seed),
        str(rank),
        f"{run.epochs[-1].samples[rank]:,}",
        f"{peak[rank] / 2**20:,.0f}" if peak else "",
        f"{device[rank] / 2**20:,.0f}" if device else "",
        "" if used is None else f"{used:.0%}",
    )


def goodput_table(results: StudyResults) -> Table:
    """Throughput and goodput of every measured batch; empty where no noise scale was measured."""
    found = results.training
    if found is None or found.noise_scale is None:
        return Table("Goodput", "", (), ())
    rows = tuple(
        (
            str(each.record.config.world_size),
            results.label(each.record),
            f"{each.record.config.global_batch_size:,}",
            interval(each.throughput_samples_per_s),
            f"{each.statistical_efficiency:.1%}",
            interval(each.goodput_samples_per_s),
        )
        for each in found.goodput
    )
    columns = (
        Column("devices", True),
        Column("setting"),
        Column("global batch", True),
        Column("throughput, samples/s", True),
        Column("statistical efficiency", True),
        Column("goodput, samples/s", True),
    )
    first, last = found.noise_scale
    caption = (
        f"Gradient noise scale: {figures(first)} samples after the first epoch, {figures(last)} after the "
        "last (McCandlish et al. 2018, appendix A.1, smoothed; mean over the training trials). Statistical "
        "efficiency: progress of a sample over that of one at the reference batch of "
        f"{found.reference_batch:,}, (scale + reference) / (scale + batch), mean over the epochs (Qiao et "
        "al. 2021); goodput: throughput times this. Intervals are the throughput's; the noise scale's own "
        "error is not in them."
    )
    return Table("Goodput", caption, columns, rows)


def _value(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return interval(estimate) if estimate.n > 1 else figures(estimate.value)


def _percent(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    value = f"{100 * estimate.value:.2f}%"
    return value if estimate.n < 2 else f"{value} [{100 * estimate.low:.2f}, {100 * estimate.high:.2f}]"


def _points(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    value = f"{estimate.value:+.2f}"
    return value if estimate.n < 2 else f"{value} [{estimate.low:+.2f}, {estimate.high:+.2f}]"


def _times(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return times(estimate) if estimate.n > 1 else f"{estimate.value:.2f}x"


def _several(group: TrainedGroup, value: Callable[[TrainedRun], int | None]) -> str:
    """One number, or the smallest and the largest over the seeds."""
    known = sorted({found for run in group.runs if (found := value(run)) is not None})
    if not known:
        return ""
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"


def _mean(group: TrainedGroup, value: Callable[[TrainedRun], float | None]) -> str:
    if group.runs[0].spec.target_accuracy is None:
        return ""
    reached = sum(value(run) is not None for run in group.runs)
    if not reached:
        return "not reached"
    mean = figures(group.mean(value) or 0.0)
    return mean if reached == len(group.runs) else f"{mean} ({reached} of {len(group.runs)} seeds)"
