"""What is not there because trials failed, in a few words: how many, in which states, why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

from raybench.analysis.labels import devices_words
from raybench.records.record import TrialRecord

if TYPE_CHECKING:
    from raybench.analysis.results import StudyResults

LONGEST_REASON = 300  # characters


def failures_words(records: Sequence[TrialRecord]) -> str:
    """How many failed, in which states, and the commonest reason of each state."""
    words = []
    for state, number in Counter(record.state for record in records).most_common():
        reasons = Counter(_first_line(record.reason) for record in records if record.state == state)
        words.append(f"{number} {state} ({reasons.most_common(1)[0][0]})")
    return ", ".join(words)


def nothing_fits(results: StudyResults) -> list[str]:
    """Where the probes of the largest batch are all that there is, and none fits."""
    if not results.largest or any(each.batch_size for each in results.largest):
        return []
    reasons = dict.fromkeys(_first_line(each.reason) for each in results.largest)
    return [f"no trial completed: no batch fits in memory ({'; '.join(reasons)})"]


def missing_target(results: StudyResults) -> list[str]:
    """Where the headline has fewer devices than were asked for: why."""
    assert results.headline is not None
    target = results.target_world_size
    if results.headline.config.world_size == target:
        return []
    there = [record for record in results.failed if record.config.world_size == target]
    why = f": {failures_words(there)}" if there else ""
    return [f"no trial completed on {devices_words(target)}{why}"]


def _first_line(reason: str | None) -> str:
    line = (reason or "").strip().splitlines()[0] if reason and reason.strip() else "no reason given"
    return shorten(line, LONGEST_REASON, placeholder=" ...")
