"""Everything that is to be said against a trial's measurement: each doubt is a ``Finding``."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from raybench.analysis.diagnosis.evenness import straggling, uneven
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.diagnosis.machine_state import other_processes, oversubscribed, throttled
from raybench.analysis.diagnosis.steadiness import drifting, noisy, outlying
from raybench.analysis.loss_parity import loss_parity
from raybench.records.measurements import Beside, StepsResult
from raybench.records.record import TrialRecord

Check = Callable[[TrialRecord, StepsResult], Finding | None]


def findings(record: TrialRecord) -> list[Finding]:
    """What is to be said against the measurement of a record; nothing for one that is not complete."""
    if record.steps is None:
        return []
    every = [check(record, record.steps) for check in _CHECKS]
    return [finding for finding in every if finding is not None]


def _losses(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    verdict = loss_parity(record)
    if verdict is None or verdict.agrees:
        return None
    strategy, gradient = record.config.setting.strategy, ""
    if verdict.gradient_difference is not None:
        gradient = (
            f", its first gradient by {verdict.gradient_difference:.2g} "
            f"(tolerance {verdict.gradient_tolerance:g})"
        )
    evidence = (
        f"{strategy}'s losses of the first {verdict.steps} steps differ from one device's on the same "
        f"samples by up to {verdict.relative_difference:.2g} (relative, tolerance {verdict.tolerance:g})"
        f"{gradient}"
    )
    explained = verdict.may_differ
    return Finding(
        FindingName.LOSSES_DISAGREE,
        Severity.NOTE if explained else Severity.PROBLEM,
        record.trial_id,
        f"{evidence}: {'; '.join(explained)}" if explained else evidence,
        "compare accuracies, not losses step by step"
        if explained
        else "find out what the strategy computes otherwise before its speed is used",
        {"relative_difference": verdict.relative_difference, "tolerance": verdict.tolerance},
    )


def _not_all(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    """What failed when the rounds were done: they stand, and what belongs beside them is not there."""
    reasons = {name: measurement.missing[name] for name in get_args(Beside) if name in measurement.missing}
    if not reasons:
        return None
    return Finding(
        FindingName.NOT_ALL_MEASURED,
        Severity.NOTE,
        record.trial_id,
        "; ".join(f"{name.replace('_', ' ')}: {reason}" for name, reason in reasons.items()),
        "nothing for the step times; a smaller batch leaves more memory for the rest",
        {},
    )


_CHECKS: tuple[Check, ...] = (
    oversubscribed, noisy, outlying, drifting, other_processes, throttled, uneven, straggling,
    _losses, _not_all,
)  # fmt: skip
