"""The changes that the diagnosis proposes, and what testing them has shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.findings.finding import Finding
from raybench.analysis.findings.verifications import Verification, Verified, verification_of
from raybench.analysis.results import StudyResults
from raybench.report.format import percent
from raybench.report.tables.base import NONE, Column, Table, known, make_table


def verification_table(results: StudyResults) -> Table:
    """One row a change, those of the most time first; empty where none was tested."""
    columns: list[Column[Verification]] = [
        Column("finding", lambda each: ", ".join(found.name for found in each.proposal.findings) or NONE),
        Column("change", lambda each: each.label or NONE),
        Column("predicted", predicted_words, right=True),
        Column("measured, in samples/s", measured_words, right=True),
        Column("verdict", verdict_cell),
        Column("n", lambda each: str(each.gain.gain.n) if each.gain else "", right=True),
    ]
    caption = (
        "Each change in the same rounds as the setting without it, unless its processes are others; 95% "
        "intervals for all at once. Confirmed: more samples/s beyond the interval and by "
        f"{results.study.search.minimum_gain:.0%} at least; less than predicted where the whole interval is "
        "below the prediction's. Refuted: slower, or not confirmed and the whole interval below what was "
        "predicted. They count for no curve and no choice."
    )
    return make_table("Verified by experiment", caption, columns, results.verifications)


def predicted_words(each: Verification) -> str:
    """The gain that was predicted; empty where none was."""
    return known(each.predicted_gain, lambda gain: percent(gain, sign=True), "")


def measured_words(each: Verification) -> str:
    """The gain that was measured; empty where it was not."""
    if each.gain is None:
        return ""
    apart = "" if each.is_paired else ", apart"
    return percent(each.gain.gain, sign=True) + apart


def verdict_words(each: Verification) -> str:
    """The verdict, and whether it falls short of the prediction."""
    return f"{each.verdict}, less than predicted" if each.less_than_predicted else str(each.verdict)


def verdict_cell(each: Verification) -> str:
    """The same, and why there is no number."""
    return verdict_words(each) + (f": {' '.join(each.reason.split())}" if each.reason else "")


def more_words(each: Verification) -> str:
    """That the gain is more than its causes can have cost; empty where it is not surely."""
    if not each.cures_more or each.causes_cost is None:
        return ""
    return f", more than the cause costs (+{each.causes_cost:.0%} at most), so it helps beside it too"


@dataclass(frozen=True)
class Advice:
    """What follows from a finding: its next step, or what taking it has shown."""

    label: str
    words: str

    def __str__(self) -> str:
        return f"{self.label}: {self.words}"


def advice_of(finding: Finding, verified: Sequence[Verification]) -> Advice:
    """The finding's next step, under the verdict and with the measured gain where it was tried."""
    test = verification_of(finding, verified)
    if test is None:
        return Advice("Next step", finding.next_step)
    measured = f": {measured_words(test)} samples/s" if test.gain else f": {' '.join(test.reason.split())}"
    measured += more_words(test)
    return Advice(verdict_words(test).capitalize(), finding.next_step + measured)


def verification_lines(results: StudyResults) -> list[str]:
    """A line for each change that was tested or tried, for the terminal."""
    tried = (Verified.CONFIRMED, Verified.REFUTED, Verified.UNDECIDED, Verified.FAILED)
    lines = []
    for each in results.verifications:
        if each.verdict not in tried:
            continue
        found = each.proposal.findings[0].name if each.proposal.findings else "an earlier finding"
        promised = f" (predicted {predicted_words(each)})" if predicted_words(each) else ""
        measured = f", {measured_words(each)} samples/s{promised}" if each.gain else ""
        told = "verified" if each.is_asked_for else "tried"
        lines.append(f"{told}: {found} -> {each.label}: {verdict_cell(each)}{measured}")
    return lines
