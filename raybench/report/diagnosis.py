"""``diagnosis.md``: the status of each configuration, where its time goes, what to change, the findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from raybench.analysis.findings.configurations import DiagnosedConfiguration
from raybench.analysis.findings.finding import Finding
from raybench.analysis.findings.verifications import Verification, verification_of
from raybench.analysis.labels import changes_words, devices_words
from raybench.analysis.results import StudyResults
from raybench.analysis.scaling import Status
from raybench.analysis.waterfall import Waterfall
from raybench.report import render
from raybench.report.finding_texts import evidence, next_step
from raybench.report.format import milliseconds, percent, sentence, times
from raybench.report.render import markdown_code
from raybench.report.render import markdown_text as _text
from raybench.report.sections.trials import failures_table
from raybench.report.sections.verification import advice_of, verification_table
from raybench.report.sections.waterfall import PART_WORDS, certain, shares_of_step
from raybench.report.table import Table, without_constant
from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.plural import plural

MOST_CAUSES = 5  # further ones stand with their configuration
MOST_OF_A_KIND = 5  # trials with the same finding
LEAST_SHARE = 0.02  # of the step; less is not worth a word
MOST_CONFIGURATIONS = 20  # further ones are in summary.csv
FindingGroup: TypeAlias = tuple[str, list[Finding]]  # a finding's name, and where it was found


def diagnosis_markdown(results: StudyResults, answer: str, findings: Sequence[FindingGroup]) -> str:
    """Status and advice for each configuration, then every finding with evidence and next step."""
    lines = [f"# Diagnosis: {_text(results.study.name)}", "", f"{_text(answer)}.", ""]
    lines += _first_lines(results)
    lines += _table_lines(verification_table(results))
    shown = results.configurations[:MOST_CONFIGURATIONS]
    configurations = [line for each in shown for line in _configuration_lines(each, results.verifications)]
    lines += ["## Configurations", "", *configurations] if configurations else []
    lines += _finding_lines(findings, results.verifications, no_findings_words(results))
    lines += _table_lines(failures_table(results))
    return "\n".join(lines).rstrip() + "\n"


def grouped(findings: Sequence[Finding], first: Sequence[Finding] = ()) -> list[FindingGroup]:
    """Findings of one name and severity together, the gravest first, in a group the longest.

    ``first``: those to speak of first, in this order.
    """
    groups: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.severity, each.name), []).append(each)
    order, leading = {"problem": 0, "warning": 1, "note": 2}, [id(each) for each in first]
    places = {(each.severity, each.name): place for place, each in enumerate(reversed(first), -len(first))}
    ordered = sorted(
        groups, key=lambda key: (-places[key] - len(first) if key in places else 1, order[key[0]])
    )
    return [
        (
            key[1],
            sorted(
                groups[key], key=lambda each: (id(each) not in leading, -each.values.get("needed_s", 0.0))
            ),
        )
        for key in ordered
    ]


def _first_lines(results: StudyResults) -> list[str]:
    """The headline's causes, what explains the most time first, each with what to do about it."""
    causes = [each for each in results.diagnosis if each.explains is not None or each.severity == "problem"]
    if not causes or results.headline is None:
        return []
    step_s, verified = results.scaling(results.headline).step_time_s, results.verifications
    lines = [
        f"## What to do first: {results.headline_label} on "
        f"{devices_words(results.headline.config.world_size)}, a step of {milliseconds(step_s)} ms",
        "",
    ]
    for number, each in enumerate(causes[:MOST_CAUSES], 1):
        share = each.explains.scaled(1 / step_s.value).as_share if each.explains else None
        told = f" ({percent(share)} of the step)" if share else ""
        told = f" (up to {share.value:.0%} of the step)" if share and each.is_at_most else told
        lines.append(
            f"{number}. **{each.name}**{told}: {_text(evidence(each))}. {_text(advice_of(each, verified))}."
        )
        test = verification_of(each, verified)
        is_open = test is None or not test.ruled_out
        lines += [f"   Try: `{_options(each.change)}`"] if each.change and is_open else []
    return [*lines, ""]


def _options(change: Mapping[str, KnobValue]) -> str:
    """The change as options of ``scaling``."""
    tables = {name: "knobs" if name in Setting.model_fields else "environment" for name in change}
    return " ".join(f"--set {tables[name]}.{name}={_toml(value)}" for name, value in change.items())


def _toml(value: KnobValue) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def no_findings_words(results: StudyResults) -> str:
    """What stands where no finding is: of trials that failed nothing is known."""
    if not results.complete:
        return "None: no trial completed, so there are no measurements to look at."
    return "None: the measurements are steady and the devices equal."


def _table_lines(table: Table) -> list[str]:
    if not table.rows:
        return []
    shown = without_constant(table)
    return [f"## {shown.title}", "", render.to_markdown(shown), _text(shown.caption), ""]


def _configuration_lines(each: DiagnosedConfiguration, verified: Sequence[Verification]) -> list[str]:
    status, speedup = each.status, each.scaling.speedup
    if status is None or speedup is None:
        return []
    many = devices_words(each.record.config.world_size)
    lines = [f"### {each.label}: {status}", "", f"- Speed-up {times(speedup)} on {many}."]
    lost = _lost_words(each.waterfall)
    causes = [found for found in each.findings if found.explains is not None]
    lines += [f"- Where the time goes: {lost}."] if lost else []
    lines += [f"- {sentence(cause.name)}: {_text(evidence(cause))}." for cause in causes]
    lines.append(f"- {_text(_advice(each, verified))}")
    return [*lines, ""]


def _lost_words(waterfall: Waterfall | None) -> str:
    """The parts of the step that are certain, the largest first; the ideal part before them.

    Its share is the efficiency, whose interval stands beside the speed-up.
    """
    if waterfall is None or waterfall.parts.ideal is None:
        return ""
    shares = shares_of_step(waterfall)
    ideal = shares.pop(PART_WORDS["ideal"])
    lost = [f"{percent(share)} {name}" for name, share in certain(shares, LEAST_SHARE)]
    return ", ".join([f"{ideal.value:.0%} of the step is what one device needs", *lost])


def _advice(each: DiagnosedConfiguration, verified: Sequence[Verification]) -> str:
    """What to change: what this study measured, nearest first, else what can be predicted."""
    efficiency = each.scaling.efficiency
    if each.nearest and efficiency is not None:
        words = [
            f"{changes_words(change.changes)} reaches {percent(change.efficiency)}, {times(change.speedup)}, "
            f"where this has {percent(efficiency)}, with {times(change.throughput_ratio)} the samples/s"
            for change in each.nearest
        ]
        keep = "Good as it is; what scales better" if each.status is Status.GOOD else "What to change"
        knobs = len(each.nearest[0].changes)
        nearest = "as one change" if knobs == 1 else f"with {knobs} knobs changed, none nearer is better"
        return f"{keep}, each measured {nearest}: {'; '.join(words)}."
    if each.status is Status.EXCELLENT:
        return "Nothing to change."
    for own in (found for found in each.findings if found.change and found.explains):
        test = verification_of(own, verified)
        if test is None:
            return f"What to change, predicted and not measured: {next_step(own)}."
        if not test.ruled_out:
            return f"What to change. {advice_of(own, verified)}."
    return nothing_better_words(each.num_tried)


def nothing_better_words(num_others: int) -> str:
    """That none of so many other configurations is better than one."""
    if num_others == 0:
        return "No other configuration could be measured, so no change is known to be better."
    more = "both faster and more efficient than this beyond the intervals"
    if num_others == 1:
        return f"The other measured configuration is not {more}."
    return f"None of the {num_others:,} other measured configurations is {more}."


def _finding_lines(
    findings: Sequence[FindingGroup], verified: Sequence[Verification], otherwise: str
) -> list[str]:
    if not findings:
        return [otherwise.replace("None:", "No findings:"), ""]
    lines = []
    for name, group in findings:
        lines += [f"## {name.capitalize()} ({group[0].severity})", ""]
        for each in group[:MOST_OF_A_KIND]:
            whose = f"trial `{each.trial_id}`: " if each.trial_id else ""
            lines.append(f"- {whose}{_text(evidence(each))}")
            lines += [f"  - {markdown_code(frame)}" for frame in each.frames]
        more = len(group) - MOST_OF_A_KIND
        lines += [f"- {plural(more, 'more trial')}"] if more > 0 else []
        typed = f" `{group[0].command}`" if group[0].command else ""
        lines += ["", f"{_text(advice_of(group[0], verified))}.{typed}", ""]
    return lines
