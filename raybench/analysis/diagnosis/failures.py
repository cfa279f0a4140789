"""What a study has no numbers of: failed trials by cause, and what was not reached."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.diagnosis.case import Around
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.failures import alike
from raybench.analysis.labels import trial_words
from raybench.analysis.measured import MeasuredStudy
from raybench.records.record import State, TrialRecord
from raybench.spec.study import Study

NAMES: dict[State, FindingName] = {
    "crashed": FindingName.CRASHED,
    "timeout": FindingName.TIMED_OUT,
    "oom": FindingName.OUT_OF_MEMORY,
    "invalid": FindingName.REFUSED,
}
MOST_NAMED = 1  # trials of one cause
GOES_ON = "--resume --output DIR"
NEXT_STEPS: dict[State, str] = {
    "crashed": "mend it, then try what crashed again, and the rest",
    "timeout": "if it does not hang, try again with more time",
    "oom": "a smaller batch, accumulation or activation_checkpointing; if others had the memory, try again",
    "invalid": "another value of what the reason names",
}
AGAIN: dict[State, str] = {
    "crashed": "--retry crashed",
    "timeout": "--retry timeout --set measure.timeout_seconds=SECONDS",
    "oom": "--retry oom",
}


def failures(results: MeasuredStudy, around: Around) -> list[Finding]:
    """A finding for each cause of failed trials.

    A problem where nothing else is there; that a batch is too large is an answer, and a note.
    """
    nothing = not results.complete
    return [_failed(results, group, around, nothing=nothing) for group in alike(results.failed)]


def not_reached(study: Study, left_out: Sequence[str], goes_on: str) -> Finding:
    """``left_out`` in words; ``goes_on`` is the command that measures it."""
    budget = ", within a time budget that begins anew" if study.time_budget_seconds is not None else ""
    return Finding(
        FindingName.NOT_REACHED,
        Severity.WARNING,
        "",
        "; ".join(left_out),
        f"measure the rest{budget}",
        {},
        command=goes_on or GOES_ON,
    )


def _failed(
    results: MeasuredStudy, group: Sequence[TrialRecord], around: Around, *, nothing: bool
) -> Finding:
    first, total = group[0], len(results.records)
    named = [trial_words(results.study, each.study_request) for each in group[:MOST_NAMED]]
    more = f"; and {len(group) - MOST_NAMED} more" if len(group) > MOST_NAMED else ""
    asked = "the only trial that was asked" if total == 1 else f"{len(group)} of {total} trials"
    whose = f" ({'; '.join(named)}{more})" if len(group) < total or total == 1 else ""
    severity = Severity.NOTE if first.state == "oom" else Severity.WARNING
    return Finding(
        NAMES[first.state],
        Severity.PROBLEM if nothing else severity,
        first.trial_id,
        f"{asked}{whose}: {' '.join((first.reason or '').split())}",
        NEXT_STEPS[first.state],
        {"num_trials": float(len(group))},
        command=f"{around.goes_on or GOES_ON} {AGAIN[first.state]}" if first.state in AGAIN else "",
        frames=first.frames,
    )
