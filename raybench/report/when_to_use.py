"""Which number of devices to use, in a sentence."""

from __future__ import annotations

from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.report.wording import passages_words, percent, rounded_batch, times


def when_to_use(results: StudyResults) -> str:
    """Which number of devices to use, as a sentence with the numbers that say so; empty without a choice."""
    headline, scaling, more = results.headline, results.headline_scaling, results.extra_device_time
    if headline is None or scaling is None or scaling.speedup is None or more is None:
        return ""
    many, speedup = devices_words(headline.config.world_size), scaling.speedup
    here = f"({results.headline_label})"
    if speedup.low <= 1:
        slower = "slower" if speedup.high < 1 else "not measurably faster"
        words = f"Use one device: {many} {here} are {slower}, {times(speedup)}, and each sample takes "
        return f"{words}{percent(more, sign=True)} device time." + _batch_words(results, many)
    words = f"Use {many} {here} where time counts: {times(speedup)} as fast, at "
    if more.low <= 0:
        return f"{words}no measurable extra cost ({percent(more, sign=True)} device time a sample)."
    cheap = f"{words}{percent(more, sign=True)} device time a sample. Use one where cost counts."
    return cheap + _batch_words(results, many)


def _batch_words(results: StudyResults, many: str) -> str:
    curve = next((each for each in results.batch_curves if each.crossover is not None), None)
    if curve is None or curve.crossover is None:
        return ""
    passage = curve.crossover
    setting, several = "" if curve.is_headline else f" ({curve.label})", passages_words(passage)
    if several:
        return f" Over the batch{setting} {several}."
    if not passage.is_slower:
        return ""
    return (
        f" Below about batch {rounded_batch(passage.batch)}{setting} one device is both faster and cheaper "
        f"than {many} (interpolated between {passage.below:,} and {passage.above:,})."
    )
