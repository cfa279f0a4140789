"""The changes that a diagnosis proposes, tested by experiment: a table, and the advice that follows."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.findings.finding import Finding
from raybench.analysis.findings.verifications import Verification, Verified, verification_of
from raybench.analysis.results import StudyResults
from raybench.report.finding_texts import next_step
from raybench.report.format import percent
from raybench.report.table import NONE, Column, Table, make_table


def verification_table(results: StudyResults) -> Table:
    """One row a change, those of the most time first; empty where none was tested."""
    columns: list[Column[Verification]] = [
        Column("finding", lambda each: source_words(each) or NONE),
        Column("change", lambda each: each.label or NONE),
        Column("gain", measured_words, right=True),
        Column("verdict", verdict_cell),
    ]
    caption = (
        "Gain in samples/s over the default in the same rounds; 95% intervals for all at once. Confirmed: by "
        f"{results.study.search.minimum_gain:.0%} at least; refuted: slower, or less than implied."
    )
    return make_table("Verified by experiment", caption, columns, results.verifications)


def source_words(each: Verification) -> str:
    """What has proposed the change; empty where it is no longer known."""
    simulated = "what if" if each.proposal.simulated is not None else ""
    return ", ".join(found.name for found in each.proposal.findings) or simulated


def measured_words(each: Verification) -> str:
    """The gain that was measured; empty where it was not."""
    if each.gain is None:
        return ""
    apart = "" if each.is_paired else ", in other processes"
    return percent(each.gain.gain, sign=True) + apart


def verdict_cell(each: Verification) -> str:
    """The verdict, and why there is no number."""
    reason = each.reason
    if each.verdict is Verified.NEEDS_YOU and not reason:
        reason = next_step(each.proposal.findings[0])
    return str(each.verdict) + (f": {' '.join(reason.split())}" if reason else "")


def advice_of(finding: Finding, verified: Sequence[Verification]) -> tuple[str, str]:
    """The finding's next step after its label; the verdict, with the measured gain, where it was tried."""
    test = verification_of(finding, verified)
    if test is None:
        return "Next step", next_step(finding)
    ratio = f", {1 + test.gain.gain.value:.2f} times as fast" if test.gain else ""
    reason = f": {' '.join(test.reason.split())}" if test.reason else ""
    return test.verdict.capitalize(), f"{test.label}{ratio}{reason}"
