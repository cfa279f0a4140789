"""Sentences of advice: how many devices, from which batch on, and what all changes bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybench.analysis.combined_effect import ChangeShare, CombinedEffect
from raybench.analysis.curves import Crossover
from raybench.analysis.labels import changes_words, devices_words
from raybench.analysis.recommendation import Basis, DeviceAdvice
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.report.format import factor, percent, plain_times, times
from raybench.report.sections.scaling import rounded_batch
from raybench.report.sections.training import points_words, seen_words
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from raybench.analysis.results import StudyResults


LARGER_BATCH = 1.01  # times the default's samples of a step: more is another batch


def when_to_use(results: StudyResults) -> str:
    """Which number of devices to use, as a sentence with the numbers that say so; empty without a choice.

    It is of the recommended setting; where one device was not measured with that, of the headline's.
    """
    advice, missing = results.device_advice, _missing(results)
    speedup = results.scaling(advice.record).speedup if advice else None
    if advice is None or speedup is None:
        return missing
    record, more = advice.record, advice.extra_device_time
    many, here = devices_words(record.config.world_size), f"({results.label(record)})"
    if (trained := opposite(results, record)) is not None:
        return (
            f"Whether to use {many} or one {here} is not known: {plain_times(trained)} as fast in "
            f"the epochs trained, {times(speedup)} by steps."
        )
    if speedup.low <= 1:
        slower = "slower" if speedup.high < 1 else "not measurably faster"
        words = f"Use one device: {many} {here} are {slower}, {times(speedup)}, and each sample takes "
        return f"{missing}{words}{percent(more, sign=True)} device time."
    words = f"{missing}Use {many} {here}"
    no_faster = _no_faster_words(results, advice)
    if advice.cheapest is not None and advice.extra_money is not None:
        return f"{words}{_by_money(advice, speedup)}{no_faster}"
    fast = f"{words} where time counts: {times(speedup)} as fast, at "
    if more.low <= 0:
        return f"{fast}no measurable extra cost ({percent(more, sign=True)} device time a sample).{no_faster}"
    slow = f" Use one where cost counts.{no_faster}"
    return f"{fast}{percent(more, sign=True)} device time a sample.{slow}"


def opposite(results: StudyResults, record: TrialRecord) -> Estimate | None:
    """The speed-up of epochs trained, where it says the opposite of that of steps; else None."""
    by_steps = results.scaling(record).speedup
    for each in results.trained_times:
        if each.record is record and each.differs and each.speedup is not None and by_steps is not None:
            return each.speedup if (each.speedup.value < 1) != (by_steps.value < 1) else None
    return None


def _by_money(advice: DeviceAdvice, speedup: Estimate) -> str:
    """Where nodes are paid too, devices that share one may be cheaper than one alone."""
    assert advice.cheapest is not None
    assert advice.extra_money is not None
    (cheapest, least), more = advice.cheapest, percent(advice.extra_money, sign=True)
    if cheapest is advice.record and least.high < 0:
        return f": {times(speedup)} as fast, and each sample costs {more} money."
    fast = f" where time counts: {times(speedup)} as fast, at"
    if least.high < 0:
        few = devices_words(cheapest.config.world_size)
        return f"{fast} {more} money a sample. Use {few} where cost counts, at {percent(least, sign=True)}."
    if advice.extra_money.low <= 0:
        return f"{fast} no measurable extra cost ({more} money a sample)."
    return f"{fast} {more} money a sample. Use one where cost counts."


def _no_faster_words(results: StudyResults, advice: DeviceAdvice) -> str:
    record = advice.no_faster
    speedup = results.scaling(record).speedup if record is not None else None
    if record is None or speedup is None:
        return ""
    return f" {devices_words(record.config.world_size)} are no faster: {times(speedup)}."


def _missing(results: StudyResults) -> str:
    """That there is nothing to compare the recommended setting with, where it is not the default's."""
    use, advice = results.recommendation, results.device_advice
    if use is None or use.is_default or use.basis is Basis.NO_CHOICE or use.config.world_size == 1:
        return ""
    if advice is not None and advice.asked is not results.headline:
        return ""
    if results.headline is not None and results.headline.config.setting == use.config.setting:
        return ""
    return f"One device was not measured with the setting to use ({use.label}). "


def combined_words(combined: CombinedEffect) -> str:
    """All changes together by their names, and what of it each brings alone."""
    return f"{changes_words(combined.together.changes)}: {_brings(combined)}"


def _brings(combined: CombinedEffect) -> str:
    together = combined.together
    size = devices_words(together.record.config.world_size)
    speedups = ""
    if combined.speedup is not None and combined.default_speedup is not None:
        speedups = f"{factor(combined.default_speedup)} becomes {times(combined.speedup)} on {size}, "
    words = f"{speedups}{times(together.efficiency_ratio)} the efficiency"
    if not together.efficiency_ratio.excludes(1.0):
        alone = ", ".join(
            f"{changes_words(each.changes)} {times(each.efficiency_ratio)}" for each in combined.singles
        )
        return f"{words}, no certain difference, so there is nothing to share out; each alone: {alone}"
    if combined.rest is None:
        return f"{words}; not every change was measured alone, so the shares are not known"
    parts = ", ".join(_share_words(each) for each in combined.shares)
    return f"{words}; shares of it: {parts}, {_rest_words(combined.rest)}"


def larger_batch_words(combined: CombinedEffect) -> str:
    """What the samples of a step with all changes do to samples/s, and to learning; empty if as many."""
    if combined.batch_ratio < LARGER_BATCH:
        return ""
    words = [
        f"a step has {combined.batch_ratio:,.3g} times the samples: "
        f"{times(combined.together.throughput_ratio)} the samples/s"
    ]
    if combined.goodput_ratio is None:
        words.append(
            "how many of them are useful is not known: it needs training.noise_scale and a learning rate "
            "that grows with the batch"
        )
    else:
        words.append(f"{plain_times(combined.goodput_ratio)} the goodput (useful samples/s)")
    return "; ".join([*words, _accuracy_words(combined)])


def _share_words(each: ChangeShare) -> str:
    changes = changes_words(each.effect.changes)
    if each.share.value < 0:
        return f"{changes} takes back {percent(each.share.scaled(-1))}"
    return f"{percent(each.share)} {changes}"


def _rest_words(rest: Estimate) -> str:
    """What the changes do together, beyond each alone or short of it."""
    if rest.value < 0:
        return f"less {percent(rest.scaled(-1))} that they do not bring together"
    return f"{percent(rest)} beyond each alone, by being together"


def _accuracy_words(combined: CombinedEffect) -> str:
    trained = combined.trained
    if trained is None or trained.difference_points is None:
        return "accuracy with all changes was not measured"
    difference, group = trained.difference_points, trained.group
    return (
        f"{points_words(difference)} points of accuracy after {plural(group.num_epochs, 'epoch')} "
        f"({seen_words(trained.num_seeds, group)})"
    )


def passage_batch(passage: Crossover) -> str:
    """The batch at which a speed-up passes 1, with its interval, which may end beyond what was measured."""
    low = f"below {passage.least:,}" if passage.low is None else rounded_batch(passage.low)
    high = f"above {passage.most:,}" if passage.high is None else rounded_batch(passage.high)
    return f"about batch {rounded_batch(passage.batch)} [{low}, {high}]"


def passages_words(passage: Crossover) -> str:
    """Where a speed-up passes 1 more than once; empty where it does once."""
    if len(passage.brackets) < 2:
        return ""
    places = ", ".join(f"{below:,} and {above:,}" for below, above in passage.brackets)
    return f"the speed-up passes 1 {len(passage.brackets)} times, between the batches {places}"
