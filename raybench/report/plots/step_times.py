"""The distribution of step times of each variant of the headline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.results import StudyResults
from raybench.records.requests import Variant
from raybench.records.step_times import slowest_steps
from raybench.report.plots.drawing import COLORS, STYLES, in_lines, legend_below, make_figure, write_title
from raybench.report.plots.lines import headline_title
from raybench.spec.counted import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_STEPS = 5000  # on a line: more are not seen
VARIANT_WORDS: dict[Variant, str] = {
    "base": "one device, global batch",
    "plain": "one device alone",
    "crowd": "all devices, no communication",
    "local": "DDP without transfers",
    "synced": "DDP",
    "versus": "the default",
}


@dataclass(frozen=True)
class Distribution:
    """Sorted times of one variant, in s."""

    label: str
    sorted_s: NDArray[np.float64]  # of very many those at even shares, the fastest and the slowest among them
    num_times: int


@dataclass(frozen=True)
class StepTimePlot:
    """The distribution of step times, or of block means where there are no samples."""

    title: str
    of_steps: bool
    distributions: tuple[Distribution, ...]


def step_time_plot(results: StudyResults, samples_dir: Path | None) -> StepTimePlot | None:
    """Step times of the headline by variant; each step counts once, by its slowest rank.

    Without a parquet file (columns variant, round, rank, step, step_time_s) the blocks' means take their
    place.
    """
    record = results.headline
    if record is None or record.steps is None:
        return None
    path = samples_dir / f"{record.trial_id}.parquet" if samples_dir else None
    times = slowest_steps(path) if path is not None and path.is_file() else {}
    of_steps = bool(times)
    for variant in VARIANT_WORDS if not of_steps else ():
        blocks = [block for each in record.steps.rounds if (block := each.block(variant))]
        times[variant] = np.array([block.slowest_s for block in blocks])
    distributions = tuple(
        Distribution(words, _thinned(np.sort(times[variant])), len(times[variant]))
        for variant, words in VARIANT_WORDS.items()
        if variant in times and len(times[variant])
    )
    return StepTimePlot(headline_title(results), of_steps, distributions) if distributions else None


def _thinned(ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(ordered) <= MOST_STEPS:
        return ordered
    return ordered[np.linspace(0, len(ordered) - 1, MOST_STEPS).round().astype(np.int64)]


def draw_step_times(plot: StepTimePlot) -> Figure:
    """The cumulative distribution of each variant's step times; rare slow ones are beyond the edge."""
    figure, (axes,) = make_figure(7.4, 4.4)
    for index, each in enumerate(plot.distributions):
        share = np.arange(1, len(each.sorted_s) + 1) / len(each.sorted_s) * 100
        axes.step(
            each.sorted_s * 1e3,
            share,
            where="post",
            color=COLORS[index % len(COLORS)],
            linestyle=STYLES[index % len(STYLES)],
            linewidth=1.6,
            label=f"{each.label} (n = {each.num_times:,})",
        )
    low_s, high_s = _bulk(plot)
    axes.set_xlim(low_s * 1e3, high_s * 1e3)
    axes.set_ylim(0, 102)
    what = "step" if plot.of_steps else "block"
    slower = (
        (each.sorted_s > high_s).sum() * each.num_times / len(each.sorted_s) for each in plot.distributions
    )
    beyond = round(float(sum(slower)))
    cut = f"\n{counted(beyond, f'slower {what}')} beyond the right edge" if beyond else ""
    axes.set_xlabel("step time, slowest rank (ms)" if plot.of_steps else "mean step time of a block (ms)")
    axes.set_ylabel(f"share of {what}s at most as long (%)")
    write_title(figure, f"Distribution of step times\n{in_lines(plot.title, 80)}{cut}")
    legend_below(figure, axes)
    return figure


def _bulk(plot: StepTimePlot) -> tuple[float, float]:
    """From where to where the axis goes, in s: all but the far tail of each variant."""
    ends = []
    for each in plot.distributions:
        ten, ninety = np.quantile(each.sorted_s, (0.1, 0.9))
        ends.append(min(each.sorted_s[-1], ninety + 3 * (ninety - ten)))
    low, high = min(each.sorted_s[0] for each in plot.distributions), max(ends)
    margin = 0.04 * max(high - low, 0.02 * high)
    return float(low - margin), float(high + margin)
