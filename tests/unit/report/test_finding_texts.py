"""What a finding proposes, and what was not examined, in words that say no more than is known."""

from __future__ import annotations

import pytest

from raybench.analysis.findings.finding import Basis, Finding, FindingName, Need, Severity
from raybench.analysis.stats.statistics import Estimate
from raybench.report.finding_texts import next_step, not_examined_words


@pytest.mark.parametrize(
    ("low", "words"),
    [
        (0.7, "measure batch 2,048, whose gain is not known"),
        (1.2, "use batch 2,048, predicted to be 1.2 to 4.3 times as fast"),
    ],
)
def test_what_may_be_slower_is_to_be_measured_not_used(low: float, words: str) -> None:
    """As "use batch 2,048, predicted to be 0.7 to 4.3 times as fast"."""
    finding = Finding(
        FindingName.COMMUNICATION_BOUND,
        Severity.WARNING,
        "trial",
        {},
        change={"batch_size": 2048},
        predicted=Estimate(2.0, low, 4.3, 10),
        basis=Basis.PREDICTED,
    )
    assert next_step(finding) == words


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
