"""Whether trained models are as accurate as others, in words: the difference, and how it is known."""

from __future__ import annotations

from raybench.analysis.labels import devices_words
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.training import Comparison, Parity, TrainedGroup
from raybench.report.format import over_few, seeds_words, times_over_seeds


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
    speed = f", {times_over_seeds(speedup)} per epoch" if speedup else ""
    if difference is None:
        return f"there are no accuracies to compare {who}{speed}"
    numbers = f"{points_words(difference)} points, {seen_words(comparison.num_seeds, comparison.group)}"
    width = f"±{comparison.tolerance_points:g} points"
    words = {
        Parity.SAME: f"accuracy {who} is the same within {width} ({numbers})",
        Parity.DIFFERENT: f"accuracy {who} differs by more than {width} ({numbers})",
        Parity.UNKNOWN: f"whether accuracy {who} is the same within {width} cannot be told ({numbers})",
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
