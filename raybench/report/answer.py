"""The study's answer in plain words: one line, its clauses separated by semicolons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from raybench.analysis.estimates.efficiency import Verdict
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.labels import devices_words
from raybench.analysis.training import Parity
from raybench.records.record import TrialRecord
from raybench.report.wording import PART_WORDS, interval, percent, rounded_batch, times

if TYPE_CHECKING:
    from raybench.analysis.curves import BatchCurve, BatchPoint
    from raybench.analysis.results import Confirmation, StudyResults
    from raybench.analysis.training import Comparison

LEAST_SHARE = 0.01  # of a step; less is not worth a word
LONGEST_REASON = 70  # characters


def answer_of(results: StudyResults) -> str:
    """What the study found, whatever was and was not measured."""
    if not results.records:
        return "; ".join(_nothing_fits(results)) or "nothing was measured"
    if not results.complete:
        return f"no trial completed: {failures_words(results.failed)}"
    trained = _training(results)
    if results.headline is None:
        return "; ".join([*_best(results), *trained]) or "only confirmations were measured"
    steps = [*_missing_target(results), _speed(results), *_crossover(results), *_lost(results)]
    return "; ".join([*steps, *_best(results), *trained])


def _nothing_fits(results: StudyResults) -> list[str]:
    """Where the probes of the largest batch are all that there is, and none fits."""
    if not results.largest or any(each.batch_size for each in results.largest):
        return []
    reasons = dict.fromkeys(_first_line(each.reason) for each in results.largest)
    return [f"no trial completed: no batch fits in memory ({'; '.join(reasons)})"]


def failures_words(records: Sequence[TrialRecord]) -> str:
    """How many failed, in which states, and the commonest reason of each state."""
    words = []
    for state, number in Counter(record.state for record in records).most_common():
        reasons = Counter(_first_line(record.reason) for record in records if record.state == state)
        words.append(f"{number} {state} ({reasons.most_common(1)[0][0]})")
    return ", ".join(words)


def _first_line(reason: str | None) -> str:
    line = (reason or "").strip().splitlines()[0] if reason and reason.strip() else "no reason given"
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 3].rstrip() + "..."


def _missing_target(results: StudyResults) -> list[str]:
    assert results.headline is not None
    target = results.target_world_size
    if results.headline.config.world_size == target:
        return []
    there = [record for record in results.failed if record.config.world_size == target]
    why = f": {failures_words(there)}" if there else ""
    return [f"no trial completed on {devices_words(target)}{why}"]


def _speed(results: StudyResults) -> str:
    """The headline's speed-up, and the other end of the batches."""
    headline, found = results.headline, results.headline_scaling
    assert headline is not None
    assert found is not None
    config = headline.config
    mark = "oversubscribed, so not to be relied on: " if config.oversubscribed else ""
    of_all = "global " if config.scaling == "strong" else ""
    at = f"at {of_all}batch {config.setting.batch_size:,}"
    devices = devices_words(config.world_size)
    rate = f"{interval(found.throughput_samples_per_s)} samples/s"
    if config.world_size == 1:
        alone = "" if results.target_world_size > 1 else "; one device only, so nothing to scale over"
        return f"{mark}{devices}: {rate} {at}{alone}"
    if found.speedup is None or found.baseline is None:
        return f"{mark}{devices}: {rate} {at}, with no smaller world size to compare with"
    over = "" if found.baseline.world_size == 1 else f" over {devices_words(found.baseline.world_size)}"
    words = f"{mark}{devices}: {times(found.speedup)}{over} {at}"
    others = [
        f"{times(point.speedup)} at {of_all}batch {point.batch_size:,}" for point in _further_batches(results)
    ]
    return ", ".join([words, *others])


def _further_batches(results: StudyResults) -> list[BatchPoint]:
    """The other batch of the headline's setting that lies furthest from the headline's speed-up."""
    assert results.headline is not None
    here = results.headline.config.setting.batch_size
    points = [
        point
        for curve in results.batch_curves
        if curve.is_headline
        for point in curve.points
        if point.batch_size != here
    ]
    if not points or results.headline_scaling is None or results.headline_scaling.speedup is None:
        return []
    speedup = results.headline_scaling.speedup.value
    return [max(points, key=lambda point: abs(point.speedup.value - speedup))]


def _crossover(results: StudyResults) -> list[str]:
    found = results.headline_scaling
    if found is None or found.speedup is None or found.baseline is None or found.baseline.world_size > 1:
        return []
    for curve in results.batch_curves[:1]:
        words = _crossover_of(curve)
        if words:
            return [words]
    if results.headline is not None and results.headline.config.world_size > 1 and found.speedup.high < 1:
        return ["slower than one"]
    return []


def _crossover_of(curve: BatchCurve) -> str:
    passage = curve.crossover
    if passage is not None:
        with_what = "" if curve.is_headline else f", with {curve.label}"
        return (
            f"slower than one below about batch {rounded_batch(passage.batch)} "
            f"(interpolated between {passage.below:,} and {passage.above:,}{with_what})"
        )
    if all(point.speedup.high < 1 for point in curve.points):
        return (
            f"slower than one at every batch measured ({curve.points[0].batch_size:,} to "
            f"{curve.points[-1].batch_size:,})"
        )
    return ""


def _lost(results: StudyResults) -> list[str]:
    """The parts of the step that are lost, the largest first, as shares of the step."""
    found = results.waterfall
    if found is None or found.world_size == 1:
        return []
    total_s = found.step_time_s.value
    shares = {
        name: part.scaled(1 / total_s) for name, part in found.parts.present().items() if name != "ideal"
    }
    certain = {name: part for name, part in shares.items() if part.low > 0 and part.value >= LEAST_SHARE}
    ordered = sorted(certain.items(), key=lambda item: -item[1].value)
    if not ordered:
        return _nothing_lost(shares)
    return ["lost: " + ", ".join(f"{part.value:.0%} {PART_WORDS[name]}" for name, part in ordered)]


def _nothing_lost(shares: dict[str, Estimate]) -> list[str]:
    total = sum(part.value for part in shares.values())
    if not shares or total < LEAST_SHARE:
        return ["nothing lost that could be measured"]
    return [f"lost: {total:.0%} of the step, in parts too small to tell from 0"]


def _best(results: StudyResults) -> list[str]:
    """The best suggestion, and what its confirmation says of it."""
    best = results.best
    if results.confirmations:
        number = f"best of {best.num_suggestions}: " if best else "best: "
        return [number + _confirmed(each) for each in results.confirmations]
    if best is None:
        return []
    failed = f" ({best.num_failed} failed)" if best.num_failed else ""
    among = f"best of {best.num_suggestions}{failed}: {results.best_label}"
    if best.is_default:
        return [among]
    value = _best_value(results)
    return [f"{among}, {value}, not yet confirmed against the default"]


def _best_value(results: StudyResults) -> str:
    assert results.best is not None
    row = next(row for row in results.summaries if row.trial_id == results.best.record.trial_id)
    assert row.throughput_samples_per_s is not None
    assert row.step_time_s is not None
    assert row.step_time_low_s is not None
    assert row.step_time_high_s is not None
    samples = row.throughput_samples_per_s * row.step_time_s
    low, high = samples / row.step_time_high_s, samples / row.step_time_low_s
    rate = Estimate(row.throughput_samples_per_s, low, high, row.rounds or 0)
    return f"{interval(rate)} samples/s"


def _training(results: StudyResults) -> list[str]:
    """Whether several devices reach the accuracy of one: of the largest world size, its first strategy."""
    found = results.training
    if found is None:
        return []
    if found.comparisons:
        most = max(found.comparisons, key=lambda each: each.group.world_size)
        return [f"trained {epochs_words(most.group.num_epochs)}: {parity_words(most)}"]
    group = found.groups[0]
    accuracy = group.mean(lambda run: run.final_accuracy)
    words = f"{devices_words(group.world_size)} trained {epochs_words(group.num_epochs)}"
    return [words if accuracy is None else f"{words}: test accuracy {accuracy:.1%}"]


def epochs_words(number: int) -> str:
    """1 epoch, 3 epochs."""
    return f"{number} epoch" if number == 1 else f"{number} epochs"


def parity_words(comparison: Comparison) -> str:
    """The verdict on the accuracy with its numbers, and the speed-up of an epoch."""
    group, difference = comparison.group, comparison.difference_points
    who = f"{devices_words(group.world_size)} ({group.strategy}) and one"
    seeds = f"{comparison.num_seeds} seed" + ("" if comparison.num_seeds == 1 else "s")
    speed = f", {times(comparison.epoch_speedup)} per epoch" if comparison.epoch_speedup else ""
    if difference is None:
        return f"{who} have no accuracies to compare{speed}"
    numbers = f"{difference.value:+.2f}"
    if difference.n > 1:
        numbers += f" [{difference.low:+.2f}, {difference.high:+.2f}]"
    numbers += f" points, {seeds}"
    width = f"±{comparison.tolerance_points:g} points"
    words = {
        Parity.SAME: f"accuracy on {who} is the same within {width} ({numbers})",
        Parity.DIFFERENT: f"accuracy on {who} differs by more than {width} ({numbers})",
        Parity.UNKNOWN: f"whether accuracy on {who} is the same within {width} cannot be told ({numbers})",
    }
    return words[comparison.parity] + speed


def _confirmed(confirmation: Confirmation) -> str:
    found = confirmation.gain
    amount = percent(found.gain, sign=True)
    if found.verdict is Verdict.NONE:
        return f"{confirmation.label}, no significant gain over the default ({amount})"
    if found.verdict is Verdict.WORSE:
        return f"{confirmation.label}, but measured again {amount} against the default: keep the default"
    return f"{confirmation.label}, {amount} over the default"
