"""Every finding on one trial: doubts about its measurement, and where the time of its step goes."""

from __future__ import annotations

from collections.abc import Iterable

from raybench.analysis.diagnosis.case import Case, OfTrial
from raybench.analysis.diagnosis.findings import Finding, ranked
from raybench.analysis.diagnosis.kinds import DOUBTS, OF_TRIAL
from raybench.records.record import TrialRecord


def findings(record: TrialRecord) -> list[Finding]:
    """The findings on a record by itself; nothing for one that is not complete."""
    return [] if record.steps is None else list(diagnose(Case.of(record, record.steps)))


def diagnose(case: Case) -> tuple[Finding, ...]:
    """The findings on a trial, what explains the most time first; no time is explained by two of them."""
    return _of_kinds(case, OF_TRIAL)


def doubts(case: Case) -> tuple[Finding, ...]:
    """The same without where the time goes: of trials that belong to another one, or compare two settings."""
    return _of_kinds(case, DOUBTS)


def _of_kinds(case: Case, kinds: Iterable[type[OfTrial]]) -> tuple[Finding, ...]:
    every = (case.finding(kind) for kind in kinds)
    return ranked(finding for finding in every if finding is not None)
