"""One trial without a study around it: what its own rounds say."""

from __future__ import annotations

from raybench.analysis.findings.case import Case
from raybench.analysis.findings.diagnose import diagnose
from raybench.analysis.findings.finding import Finding
from raybench.analysis.scaling import Fit
from raybench.analysis.waterfall import Waterfall
from raybench.records.record import TrialRecord


def case_of(record: TrialRecord, fit: Fit | None = None) -> Case:
    """What the diagnosis of a complete trial of steps may look at."""
    assert record.steps is not None
    return Case(record, fit or Fit([record]), (record,))


def among(record: TrialRecord, *others: TrialRecord) -> Case:
    """The same, and the others of its world size and placement."""
    there = (record, *others)
    return Case(record, Fit(there), there)


def findings(record: TrialRecord) -> list[Finding]:
    """The findings on a trial; nothing for one that is not complete."""
    return [] if record.steps is None else list(diagnose(case_of(record)))


def waterfall(record: TrialRecord) -> Waterfall | None:
    """The waterfall of a complete trial; None without a step of one device to start from."""
    return Fit([record]).waterfall(record)
