"""What an ablation answers: what all changes bring, each one's share, what their batch does to learning."""

from __future__ import annotations

from raybench.analysis.cure import Cure, CureShare
from raybench.analysis.labels import changes_words, devices_words
from raybench.report.parity_words import points_words, seen_words
from raybench.report.wording import (
    epochs_words,
    factor,
    percent,
    plain_times,
    times,
)

LARGER_BATCH = 1.01  # times the default's samples of a step: more is another batch


def cure_words(cure: Cure) -> str:
    """All changes together, and what of it each brings alone."""
    together = cure.together
    size = devices_words(together.record.config.world_size)
    speedups = ""
    if cure.speedup is not None and cure.default_speedup is not None:
        speedups = f" {factor(cure.default_speedup)} becomes {times(cure.speedup)} on {size},"
    words = (
        f"all changes together ({changes_words(together.changes)}):{speedups} "
        f"{times(together.efficiency_ratio)} the efficiency"
    )
    if not together.efficiency_ratio.excludes(1.0):
        alone = ", ".join(
            f"{changes_words(each.changes)} {times(each.efficiency_ratio)}" for each in cure.singles
        )
        return f"{words}, no certain difference, so there is nothing to share out; each alone: {alone}"
    if cure.rest is None:
        return f"{words}; not every change was measured alone, so the shares are not known"
    parts = ", ".join(_share_words(each) for each in cure.shares)
    rest = percent(cure.rest, sign=True)
    return f"{words}; shares of it: {parts}, {rest} what they do together beyond each alone"


def larger_batch_words(cure: Cure) -> str:
    """What the samples of a step with all changes do to samples/s, and to learning; empty if as many."""
    if cure.batch_ratio < LARGER_BATCH:
        return ""
    words = [
        f"a step has {cure.batch_ratio:,.3g} times the samples: "
        f"{times(cure.together.throughput_ratio)} the samples/s"
    ]
    if cure.goodput_ratio is None:
        words.append("how many of them are useful was not measured (training.noise_scale)")
    else:
        words.append(f"{plain_times(cure.goodput_ratio)} the goodput (useful samples/s)")
    return "; ".join([*words, _accuracy_words(cure)])


def _share_words(each: CureShare) -> str:
    return f"{percent(each.share)} {changes_words(each.effect.changes)}"


def _accuracy_words(cure: Cure) -> str:
    trained = cure.trained
    if trained is None or trained.difference_points is None:
        return "accuracy with all changes was not measured"
    difference, group = trained.difference_points, trained.group
    return (
        f"{points_words(difference)} points of accuracy after {epochs_words(group.num_epochs)} "
        f"({seen_words(trained.num_seeds, group)})"
    )
