"""Every finding on one trial: doubts about its measurement, and where the time of its step goes."""

from __future__ import annotations

from typing import get_args

from raybench.analysis.diagnosis.case import Case, Check
from raybench.analysis.diagnosis.communication import communicating
from raybench.analysis.diagnosis.compute import costly_wrapper, data_bound, fixed_costs, memory_bound
from raybench.analysis.diagnosis.contention import contending, other_processes
from raybench.analysis.diagnosis.evenness import straggling, uneven, uneven_batches
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity, ranked
from raybench.analysis.diagnosis.machine_state import oversubscribed, throttled
from raybench.analysis.diagnosis.steadiness import drifting, noisy, outlying
from raybench.analysis.diagnosis.undivided import negative_scaling, undivided
from raybench.analysis.loss_parity import loss_parity
from raybench.records.measurements import Beside
from raybench.records.record import TrialRecord

_BESIDE: tuple[Beside, ...] = get_args(Beside)


def findings(record: TrialRecord) -> list[Finding]:
    """The findings on a record by itself; nothing for one that is not complete."""
    return [] if record.steps is None else list(diagnose(Case.of(record, record.steps)))


def diagnose(case: Case) -> tuple[Finding, ...]:
    """The findings on a trial, what explains the most time first; no time is explained by two of them."""
    every = [case.finding(check) for check in _CHECKS]
    return ranked(finding for finding in every if finding is not None)


def doubts(case: Case) -> tuple[Finding, ...]:
    """The same without where the time goes: of trials that belong to another one, or compare two settings."""
    every = [case.finding(check) for check in _DOUBTS]
    return ranked(finding for finding in every if finding is not None)


def _losses(case: Case) -> Finding | None:
    record = case.record
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


def _not_all(case: Case) -> Finding | None:
    """What failed when the rounds were done: they stand, and what belongs beside them is not there."""
    missing = case.steps.missing
    reasons = {name: missing[name] for name in _BESIDE if name in missing}
    if not reasons:
        return None
    return Finding(
        FindingName.NOT_ALL_MEASURED,
        Severity.NOTE,
        case.record.trial_id,
        "; ".join(f"{name.replace('_', ' ')}: {reason}" for name, reason in reasons.items()),
        "nothing for the step times; a smaller batch leaves more memory for the rest",
        {},
    )


_DOUBTS: tuple[Check, ...] = (
    oversubscribed, noisy, outlying, drifting, other_processes, throttled, uneven, straggling,
    _losses, _not_all,
)  # fmt: skip
_CHECKS: tuple[Check, ...] = (
    *_DOUBTS, communicating, contending, costly_wrapper, uneven_batches, data_bound, fixed_costs,
    memory_bound, undivided, negative_scaling,
)  # fmt: skip
