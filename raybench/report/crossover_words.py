"""From which batch on more devices are faster than one, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybench.report.format import passage_words, passages_words

if TYPE_CHECKING:
    from raybench.analysis.curves import BatchCurve
    from raybench.analysis.results import StudyResults


def crossover_words(results: StudyResults) -> list[str]:
    """Of the first batch curve, over one device; empty where every batch is faster, or there is none."""
    scaling = results.headline_scaling
    if (
        scaling is None
        or scaling.speedup is None
        or scaling.baseline is None
        or scaling.baseline.world_size > 1
    ):
        return []
    for curve in results.batch_curves[:1]:
        words = _crossover_of(curve)
        if words:
            return [words]
    if results.headline is not None and results.headline.config.world_size > 1 and scaling.speedup.high < 1:
        return ["slower than one"]
    return []


def _crossover_of(curve: BatchCurve) -> str:
    passage = curve.crossover
    if passage is not None:
        with_what = "" if curve.is_headline else f", with {curve.label}"
        several = passages_words(passage)
        if several:
            return f"{several}{with_what}"
        if not passage.is_slower:
            at = "" if passage.is_wide else "at "
            return (
                "not slower than one beyond the intervals; 1.00x is passed "
                f"{at}{passage_words(passage, with_what)}"
            )
        below = "a batch somewhere " if passage.is_wide else ""
        return f"slower than one below {below}{passage_words(passage, with_what)}"
    if all(point.speedup.high < 1 for point in curve.points):
        return (
            f"slower than one at every batch measured ({curve.points[0].batch_size:,} to "
            f"{curve.points[-1].batch_size:,})"
        )
    return ""
