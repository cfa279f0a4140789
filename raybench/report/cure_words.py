"""What an ablation answers: what all changes bring, each one's share, what their batch does to learning."""

from __future__ import annotations

from raybench.analysis.cure import Cure, CureShare
from raybench.analysis.labels import changes_words, devices_words
from raybench.analysis.stats.statistics import Estimate
from raybench.report.format import (
    epochs_words,
    factor,
    percent,
    plain_times,
    times,
)
from raybench.report.parity_words import points_words, seen_words

LARGER_BATCH = 1.01  # times the default's samples of a step: more is another batch


def cure_words(cure: Cure) -> str:
    """All changes together by their names, and what of it each brings alone."""
    return f"all changes together ({changes_words(cure.together.changes)}): {_brings(cure)}"


def short_cure_words(cure: Cure) -> str:
    """The same for a terminal: each name once, and of a larger batch how much of its speed learns."""
    words = f"all {len(cure.together.changes)} changes together: {_brings(cure)}"
    if cure.batch_ratio < LARGER_BATCH:
        return words
    told = [f"{plain_times(cure.goodput_ratio)} the goodput"] if cure.goodput_ratio is not None else []
    if cure.trained is not None and cure.trained.difference_points is not None:
        told.append(f"{points_words(cure.trained.difference_points)} points of accuracy")
    learns = ", ".join(told) or "what that does to learning was not measured"
    return f"{words}; with {cure.batch_ratio:,.3g} times the samples in a step: {learns}"


def _brings(cure: Cure) -> str:
    together = cure.together
    size = devices_words(together.record.config.world_size)
    speedups = ""
    if cure.speedup is not None and cure.default_speedup is not None:
        speedups = f"{factor(cure.default_speedup)} becomes {times(cure.speedup)} on {size}, "
    words = f"{speedups}{times(together.efficiency_ratio)} the efficiency"
    if not together.efficiency_ratio.excludes(1.0):
        alone = ", ".join(
            f"{changes_words(each.changes)} {times(each.efficiency_ratio)}" for each in cure.singles
        )
        return f"{words}, no certain difference, so there is nothing to share out; each alone: {alone}"
    if cure.rest is None:
        return f"{words}; not every change was measured alone, so the shares are not known"
    parts = ", ".join(_share_words(each) for each in cure.shares)
    return f"{words}; shares of it: {parts}, {_rest_words(cure.rest)}"


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
    changes = changes_words(each.effect.changes)
    if each.share.value < 0:
        return f"{changes} takes back {percent(each.share.scaled(-1))}"
    return f"{percent(each.share)} {changes}"


def _rest_words(rest: Estimate) -> str:
    """What the changes do together, beyond each alone or short of it."""
    if rest.value < 0:
        return f"less {percent(rest.scaled(-1))} that they do not bring together"
    return f"{percent(rest)} beyond each alone, by being together"


def _accuracy_words(cure: Cure) -> str:
    trained = cure.trained
    if trained is None or trained.difference_points is None:
        return "accuracy with all changes was not measured"
    difference, group = trained.difference_points, trained.group
    return (
        f"{points_words(difference)} points of accuracy after {epochs_words(group.num_epochs)} "
        f"({seen_words(trained.num_seeds, group)})"
    )
