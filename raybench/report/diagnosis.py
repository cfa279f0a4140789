"""``diagnosis.md``: the status of each configuration, where its time goes, what to change, the findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from raybench.analysis.attribution import Attribution
from raybench.analysis.diagnosis.configurations import Change, DiagnosedConfiguration
from raybench.analysis.diagnosis.findings import Finding
from raybench.analysis.estimates.efficiency import Status
from raybench.analysis.estimates.waterfall import Waterfall
from raybench.analysis.diagnosis.advice import change_words
from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.report import formats
from raybench.report.contents import ReportTables
from raybench.report.losses import certain, shares_of_step
from raybench.report.tables.base import Table
from raybench.report.when_to_use import when_to_use
from raybench.report.wording import PART_WORDS, UNPAIRED, percent, times

LEAST_SHARE = 0.02  # of the step; less is not worth a word
MOST_CONFIGURATIONS = 20  # further ones are in the table only
FindingGroup: TypeAlias = tuple[str, list[Finding]]  # a finding's name, and where it was found


def diagnosis_markdown(
    results: StudyResults, tables: ReportTables, answer: str, findings: Sequence[FindingGroup]
) -> str:
    """Status and advice for each configuration, then every finding with evidence and next step."""
    lines = [f"# Diagnosis: {results.study.name}", "", f"{answer}.", ""]
    lines += _status_lines(tables.configurations)
    for each in results.configurations[:MOST_CONFIGURATIONS]:
        lines += _configuration_lines(each)
    lines += _ranking_lines(results.attribution)
    sentence = when_to_use(results)
    lines += ["## When to use which", "", sentence, ""] if sentence else []
    lines += _finding_lines(findings, no_findings_words(results))
    if results.failed:
        lines += [f"## {tables.failures.title}", "", formats.to_markdown(tables.failures)]
    return "\n".join(lines).rstrip() + "\n"


def grouped(findings: Sequence[Finding]) -> list[FindingGroup]:
    """Findings of one name and severity together, the gravest first, in a group the longest."""
    order = {"problem": 0, "warning": 1, "note": 2}
    keys = dict.fromkeys((each.severity, each.name) for each in findings)
    groups = []
    for severity, name in sorted(keys, key=lambda key: order[key[0]]):
        group = [each for each in findings if (each.severity, each.name) == (severity, name)]
        groups.append((str(name), sorted(group, key=lambda each: -each.values.get("needed_s", 0.0))))
    return groups


def no_findings_words(results: StudyResults) -> str:
    """What stands where no finding is: of trials that failed nothing is known."""
    if not results.complete:
        return "None: no trial completed, so there are no measurements to look at."
    return "None: the measurements are steady and the devices alike."


def _status_lines(table: Table) -> list[str]:
    if not table.rows:
        return []
    return [f"## {table.title}", "", formats.to_markdown(table), table.caption, ""]


def _configuration_lines(each: DiagnosedConfiguration) -> list[str]:
    status, speedup = each.status, each.scaling.speedup
    if status is None or speedup is None:
        return []
    lines = [f"### {each.label}: {status}", "", f"- Speed-up {times(speedup)} on {_devices(each)}."]
    lost = _lost_words(each.waterfall)
    lines += [f"- Where the time goes: {lost}."] if lost else []
    lines.append(f"- {_advice(each)}")
    return [*lines, ""]


def _devices(each: DiagnosedConfiguration) -> str:
    return devices_words(each.record.config.world_size)


def _lost_words(waterfall: Waterfall | None) -> str:
    """The parts of the step that are certain, the largest first; the ideal part before them."""
    if waterfall is None or waterfall.parts.ideal is None:
        return ""
    shares = shares_of_step(waterfall)
    ideal = shares.pop(PART_WORDS["ideal"])
    lost = [f"{percent(share)} {name}" for name, share in certain(shares, LEAST_SHARE)]
    return ", ".join([f"{percent(ideal)} of the step is what one device needs", *lost])


def _advice(each: DiagnosedConfiguration) -> str:
    """What to change, by what this study measured; never more than it measured."""
    efficiency = each.scaling.efficiency
    if each.changes and efficiency is not None:
        words = [
            f"{change_words(change.changes)} reaches {percent(change.efficiency)}, {times(change.speedup)}, "
            f"where this has {percent(efficiency)}, with {times(change.throughput_ratio)} the samples/s"
            for change in each.nearest
        ]
        keep = "Good as it is; what scales better" if each.status is Status.GOOD else "What to change"
        return f"{keep}, each measured as one change, exploratory: {'; '.join(words)}."
    if each.status is Status.EXCELLENT:
        return "Nothing to change."
    if not each.num_tried:
        return "What to change: nothing was measured that differs from it in one knob only."
    number = f"{each.num_tried} measured configuration{'s' if each.num_tried > 1 else ''}"
    verb = "differ" if each.num_tried > 1 else "differs"
    return (
        f"Nothing measured helps: {number} {verb} from it in one knob, none of them faster and more "
        "efficient beyond the intervals."
    )


def _ranking_lines(attribution: Attribution | None) -> list[str]:
    """The knobs by how much their best measured value changes the efficiency against the default."""
    if attribution is None or not attribution.singles:
        return []
    lines = ["## What changes the efficiency most", ""]
    lines.append(
        f"Against the default at {attribution.default_efficiency.value:.0%} on "
        f"{devices_words(attribution.world_size)}, one knob at a time, the largest effect first; the "
        f"effects have 95% intervals for all at once. Exploratory: {UNPAIRED}"
    )
    lines.append("")
    for effect in attribution.singles:
        sure = "" if effect.efficiency_ratio.excludes(1.0) else " (no difference beyond the interval)"
        lines.append(
            f"- {effect.label}: {times(effect.efficiency_ratio)} the efficiency, "
            f"{effect.efficiency.value:.0%}{sure}; {times(effect.throughput_ratio)} the samples/s."
        )
    return [*lines, ""]


def _finding_lines(findings: Sequence[FindingGroup], otherwise: str) -> list[str]:
    if not findings:
        return [otherwise.replace("None:", "No findings:"), ""]
    lines = []
    for name, group in findings:
        lines += [f"## {name.capitalize()} ({group[0].severity})", ""]
        lines += [f"- trial `{each.trial_id}`: {each.evidence}" for each in group]
        lines += ["", f"Next step: {group[0].next_step}.", ""]
    return lines
