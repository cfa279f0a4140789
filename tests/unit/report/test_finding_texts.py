"""What a finding proposes, and what was not examined, in words that say no more than is known."""

from __future__ import annotations

import pytest

from raybench.analysis.findings.finding import Finding, FindingName, Need, Reason, Severity
from raybench.report.finding_texts import next_step, not_examined_words
from raybench.spec.knobs import KnobValue


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 128}, "measure bucket_cap_mb 1 too, or set batch_size to 128"),
        ({"bucket_cap_mb": 32.0}, "set bucket_cap_mb to 32"),
        ({"fsdp_reshard": False}, "set fsdp_reshard to false"),
        ({"gradient_compression": "bf16", "workers": 2}, "set gradient_compression to bf16 and workers to 2"),
        (None, "measure bucket_cap_mb 1 too"),
    ],
)
def test_the_next_step_is_the_change_where_there_is_one(
    change: dict[str, KnobValue] | None, words: str
) -> None:
    """As "measure bucket_cap_mb 1 too" with twice the batch as the change."""
    name, reason = FindingName.COMMUNICATION_BOUND, Reason.ONE_BUCKET_SIZE
    found = Finding(name, Severity.WARNING, "a", {}, reason, {"sizes": "1"}, change=change)
    assert next_step(found) == words


def test_a_larger_batch_that_is_known_is_named_once() -> None:
    change: dict[str, KnobValue] = {"batch_size": 128}
    found = Finding(
        FindingName.COMMUNICATION_BOUND, Severity.WARNING, "a", {}, Reason.COMPRESSED, change=change
    )
    assert next_step(found) == "use batch_size 128, gradient accumulation or a faster link"
