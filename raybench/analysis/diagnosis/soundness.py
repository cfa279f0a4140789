"""Does a trial compute what one device computes, and was all of it measured?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, get_args

from raybench.analysis.diagnosis.case import Case, OfTrial
from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep, Severity
from raybench.analysis.loss_parity import ParityVerdict, loss_parity
from raybench.records.measurements import Beside

_BESIDE: tuple[Beside, ...] = get_args(Beside)


@dataclass(frozen=True)
class LossesDisagree(OfTrial):
    """The strategy's first losses or gradient are not one device's."""

    name = FindingName.LOSSES_DISAGREE
    verdict: ParityVerdict

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Beyond the tolerance."""
        verdict = loss_parity(case.record)
        return cls(case, verdict) if verdict is not None and not verdict.agrees else None

    @property
    def severity(self) -> Severity:
        """A problem unless something in the model explains it."""
        return Severity.NOTE if self.verdict.may_differ else Severity.PROBLEM

    def evidence(self) -> Evidence:
        """By how much, and what explains it."""
        verdict, gradient = self.verdict, ""
        if verdict.gradient_difference is not None:
            gradient = (
                f", its first gradient by {verdict.gradient_difference:.2g} "
                f"(tolerance {verdict.gradient_tolerance:g})"
            )
        words = (
            f"{self.case.config.setting.strategy}'s losses of the first {verdict.steps} steps differ from "
            f"one device's on the same samples by up to {verdict.relative_difference:.2g} (relative, "
            f"tolerance {verdict.tolerance:g}){gradient}"
        )
        explained = f": {'; '.join(verdict.may_differ)}" if verdict.may_differ else ""
        values = {"relative_difference": verdict.relative_difference, "tolerance": verdict.tolerance}
        return Evidence(f"{words}{explained}", values)

    def next_step(self) -> NextStep:
        """What to compare instead, or to find out."""
        if self.verdict.may_differ:
            return NextStep("compare accuracies, not losses step by step")
        return NextStep("find out what the strategy computes otherwise before its speed is used")


@dataclass(frozen=True)
class NotAllMeasured(OfTrial):
    """What failed when the rounds were done: they stand, and what belongs beside them is not there."""

    name = FindingName.NOT_ALL_MEASURED
    reasons: tuple[tuple[str, str], ...]  # what is missing, and why

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Something beside the rounds is missing."""
        missing = case.steps.missing
        reasons = tuple((name, missing[name]) for name in _BESIDE if name in missing)
        return cls(case, reasons) if reasons else None

    @property
    def severity(self) -> Severity:
        """The rounds stand."""
        return Severity.NOTE

    def evidence(self) -> Evidence:
        """What, and why."""
        return Evidence("; ".join(f"{name.replace('_', ' ')}: {reason}" for name, reason in self.reasons), {})

    def next_step(self) -> NextStep:
        """Nothing that step times need."""
        return NextStep("nothing for the step times; a smaller batch leaves more memory for the rest")
