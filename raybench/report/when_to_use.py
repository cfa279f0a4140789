"""Which number of devices to use, in a sentence."""

from __future__ import annotations

from raybench.analysis.cost import extra_device_time
from raybench.analysis.labels import devices_words
from raybench.analysis.recommendation import Basis
from raybench.analysis.results import StudyResults
from raybench.records.record import TrialRecord
from raybench.report.wording import passages_words, percent, plain_times, rounded_batch, times


def when_to_use(results: StudyResults) -> str:
    """Which number of devices to use, as a sentence with the numbers that say so; empty without a choice.

    It is of the recommended setting; where one device was not measured with that, of the headline's.
    """
    record, missing = _subject(results)
    more = extra_device_time(results, record)
    speedup = results.scaling(record).speedup if record else None
    if record is None or speedup is None or more is None:
        return missing
    many, here = devices_words(record.config.world_size), f"({results.label(record)})"
    trained = next((each for each in results.trained_times if each.record is record), None)
    if trained is not None and trained.differs and trained.speedup is not None:
        return (
            f"Whether to use {many} or one {here} cannot be told: {plain_times(trained.speedup)} as fast in "
            f"the epochs trained, {times(speedup)} by steps."
        )
    batches = _batch_words(results, many, is_headline=record is results.headline)
    if speedup.low <= 1:
        slower = "slower" if speedup.high < 1 else "not measurably faster"
        words = f"Use one device: {many} {here} are {slower}, {times(speedup)}, and each sample takes "
        return f"{missing}{words}{percent(more, sign=True)} device time.{batches}"
    words = f"{missing}Use {many} {here} where time counts: {times(speedup)} as fast, at "
    if more.low <= 0:
        return f"{words}no measurable extra cost ({percent(more, sign=True)} device time a sample)."
    return f"{words}{percent(more, sign=True)} device time a sample. Use one where cost counts.{batches}"


def _subject(results: StudyResults) -> tuple[TrialRecord | None, str]:
    """The trial to speak of, and what is missing of the one that is recommended."""
    use = results.recommendation
    if use is None or use.is_default or use.basis is Basis.NO_CHOICE:
        return results.headline, ""
    record = results.speaker_of(use.config)
    if record is not None and extra_device_time(results, record) is not None:
        return record, ""
    return results.headline, f"One device was not measured with the setting to use ({use.label}). "


def _batch_words(results: StudyResults, many: str, *, is_headline: bool) -> str:
    curve = next((each for each in results.batch_curves if each.crossover is not None), None)
    if curve is None or curve.crossover is None:
        return ""
    passage = curve.crossover
    setting, several = (
        "" if curve.is_headline and is_headline else f" ({curve.label})",
        passages_words(passage),
    )
    if several:
        return f" Over the batch{setting} {several}."
    if not passage.is_slower:
        return ""
    return (
        f" Below about batch {rounded_batch(passage.batch)}{setting} one device is both faster and cheaper "
        f"than {many} (interpolated between {passage.below:,} and {passage.above:,})."
    )
