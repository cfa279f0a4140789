"""What a finding proposes, and what was not examined, in words that say no more than is known."""

from __future__ import annotations

from raybench.analysis.findings.finding import FindingName, Need
from raybench.report.finding_texts import not_examined_words


def test_what_was_not_examined_is_no_advice() -> None:
    """As "not examined: batch too small, which needs a larger batch"."""
    words = not_examined_words(
        [
            (FindingName.BATCH_TOO_SMALL, Need.BATCHES),
            (FindingName.CONTENTION, Need.VARIANTS),
            (FindingName.COSTLY_WRAPPER, Need.VARIANTS),
        ]
    )
    assert words == (
        "Not examined: whether the batch is too small (no larger one was measured). "
        "Not examined: contention, costly wrapper (the trial has not all variants)."
    )
    assert not any("{" in not_examined_words([(FindingName.DATA_BOUND, need)]) for need in Need)
