"""Which of very many trials are diagnosed: each takes milliseconds, and a report draws a few."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.measured import MeasuredStudy
from raybench.records.record import TrialRecord

MOST = 2500  # trials that are all diagnosed
AT_EITHER_END = 500  # suggestions of more than those that are


def diagnosed(results: MeasuredStudy) -> Sequence[TrialRecord]:
    """The trials whose findings are looked for, in their order: all, or of very many those to speak of.

    Of more than ``MOST`` that is whatever no search suggested, the headline, and of the suggestions the most
    and the least efficient: among these are all that documents name.
    """
    if len(results.records) <= MOST:
        return results.records
    suggested = [each for each in results.measured if each.request.role == "search"]
    ordered = sorted(suggested, key=lambda each: _efficiency(results, each))
    named = {each.trial_id for each in (*ordered[:AT_EITHER_END], *ordered[-AT_EITHER_END:])}
    if results.headline:
        named.add(results.headline.trial_id)
    return [each for each in results.records if each.request.role != "search" or each.trial_id in named]


def not_diagnosed_words(number: int) -> str:
    """What is to be said where of so many trials not all were diagnosed; else empty."""
    if number <= MOST:
        return ""
    return (
        f"Of {number:,} trials these are the findings of all that no search suggested, and of the "
        f"{AT_EITHER_END} most and the {AT_EITHER_END} least efficient suggestions; the others were not "
        "looked at."
    )


def _efficiency(results: MeasuredStudy, record: TrialRecord) -> float:
    efficiency = results.scaling(record).efficiency
    return efficiency.value if efficiency else 0.0
