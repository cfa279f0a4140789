"""What each setting changes: effects of knobs, diagnosed configurations, tested proposals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.attribution import Effect
from raybench.analysis.findings.configurations import DiagnosedConfiguration
from raybench.analysis.findings.finding import Finding
from raybench.analysis.findings.verifications import Verification, Verified, verification_of
from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.analysis.scaling import EXCELLENT, GOOD
from raybench.report.advice import combined_words, larger_batch_words
from raybench.report.finding_texts import next_step
from raybench.report.format import count, percent, sentence, times
from raybench.report.pages import EXPLORATORY
from raybench.report.table import (
    MOST_ROWS,
    NONE,
    Column,
    Table,
    empty_table,
    first_rows_words,
    known,
    make_table,
)

CONFIGURATIONS_TITLE = "Configurations"


EFFECTS_TITLE = "What each knob changes"


@dataclass(frozen=True)
class _Row:
    """An effect, and of how many knobs it is."""

    effect: Effect
    of: str


_COLUMNS: list[Column[_Row]] = [
    Column("change", lambda row: row.effect.label),
    Column("of", lambda row: row.of),
    Column("efficiency", lambda row: percent(row.effect.efficiency), right=True),
    Column("efficiency / default's", lambda row: times(row.effect.efficiency_ratio), right=True),
    Column("samples/s / default's", lambda row: times(row.effect.throughput_ratio), right=True),
    Column("interaction", lambda row: known(row.effect.interaction, times), right=True),
    Column("n", lambda row: count(row.effect.efficiency_ratio), right=True),
]


def attribution_table(results: StudyResults) -> Table:
    """What each knob changes against the default, one at a time and together."""
    attribution = results.attribution
    if attribution is None:
        return empty_table(EFFECTS_TITLE)
    effects = [*attribution.singles, *attribution.together]
    interaction = (
        " Interaction: together, over the product of each alone."
        if any(effect.interaction is not None for effect in effects)
        else ""
    )
    accumulation = (
        " Accumulation alone leaves the batch of a pass as it is."
        if any("gradient_accumulation" in effect.changes for effect in effects)
        else ""
    )
    caption = (
        f"Against the default ({results.label(attribution.default)}) at "
        f"{percent(attribution.default_efficiency)} on {devices_words(attribution.world_size)}. "
        f"95% intervals for all rows at once. {EXPLORATORY}{interaction}{accumulation}"
    )
    if (combined := results.combined_effect) is not None:
        caption += f" {combined_words(combined)}. {sentence(larger_batch_words(combined))}"
    rows = [_Row(effect, "one knob") for effect in attribution.singles]
    rows += [_Row(effect, f"{len(effect.changes)} knobs together") for effect in attribution.together]
    return make_table(EFFECTS_TITLE, caption, _COLUMNS, rows)


_CONFIGURATION_COLUMNS: list[Column[DiagnosedConfiguration]] = [
    Column("configuration", lambda each: each.label),
    Column("status", lambda each: str(each.status) if each.status else "no baseline"),
    Column("speed-up", lambda each: known(each.scaling.speedup, times, ""), right=True),
    Column("efficiency", lambda each: known(each.scaling.efficiency, percent, ""), right=True),
    Column("n", lambda each: count(each.scaling.step_time_s), right=True),
]


def configurations_table(results: StudyResults) -> Table:
    """The configurations at the headline's world size, the best efficiency first."""
    configurations = results.configurations
    if not configurations:
        return empty_table(CONFIGURATIONS_TITLE)
    caption = (
        f"On {devices_words(configurations[0].record.config.world_size)}, 95% interval of each, n rounds. "
        f"{EXPLORATORY} Excellent: efficiency at least {EXCELLENT:.0%}; good: {GOOD:.0%}; negative: slower "
        "than one device. A batch is a choice about speed alone."
    )
    number = len(configurations)
    if number > MOST_ROWS:
        caption += f" {first_rows_words(MOST_ROWS, number)}"
    return make_table(CONFIGURATIONS_TITLE, caption, _CONFIGURATION_COLUMNS, configurations[:MOST_ROWS])


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
        "Each change against the default in the same rounds; 95% intervals for all at once. Confirmed: by "
        f"{results.study.search.minimum_gain:.0%} at least; refuted: slower, or below the prediction."
    )
    return make_table("Verified by experiment", caption, columns, results.verifications)


def predicted_words(each: Verification) -> str:
    """The gain that was predicted; empty where none was."""
    return known(each.predicted_gain, lambda gain: percent(gain, sign=True), "")


def measured_words(each: Verification) -> str:
    """The gain that was measured; empty where it was not."""
    if each.gain is None:
        return ""
    apart = "" if each.is_paired else ", in other processes"
    return percent(each.gain.gain, sign=True) + apart


def verdict_words(each: Verification) -> str:
    """The verdict, and whether it falls short of the prediction."""
    return f"{each.verdict}, less than predicted" if each.less_than_predicted else str(each.verdict)


def verdict_cell(each: Verification) -> str:
    """The same, and why there is no number."""
    reason = each.reason
    if each.verdict is Verified.NEEDS_YOU and not reason:
        reason = next_step(each.proposal.findings[0])
    return verdict_words(each) + (f": {' '.join(reason.split())}" if reason else "")


def more_words(each: Verification) -> str:
    """That the gain is more than its causes can have cost; empty where it is not surely."""
    if not each.cures_more or each.causes_cost is None:
        return ""
    return f", more than the cause costs (+{each.causes_cost:.0%} at most), so it also helps otherwise"


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
        return Advice("Next step", next_step(finding))
    measured = f": {measured_words(test)} samples/s" if test.gain else f": {' '.join(test.reason.split())}"
    measured += more_words(test)
    return Advice(verdict_words(test).capitalize(), next_step(finding) + measured)


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
