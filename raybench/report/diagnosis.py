"""``diagnosis.md``: the status of each configuration, where its time goes, what to change, the findings."""

from __future__ import annotations

from collections.abc import Mapping

from raybench.analysis.findings.configurations import DiagnosedConfiguration
from raybench.analysis.findings.finding import Finding
from raybench.analysis.findings.verifications import verification_of
from raybench.analysis.labels import changes_words, devices_of
from raybench.analysis.results import StudyResults
from raybench.analysis.scaling import Status
from raybench.analysis.waterfall import Waterfall
from raybench.report import render
from raybench.report.finding_texts import cost, evidence, evidence_among, next_step
from raybench.report.format import percent, sentence, times
from raybench.report.render import markdown_code
from raybench.report.render import markdown_text as _text
from raybench.report.sections.trials import failures_table
from raybench.report.sections.verification import advice_of, verification_table
from raybench.report.sections.waterfall import lost_parts
from raybench.report.table import Column, Table, make_table, without_constant
from raybench.spec.knobs import KnobValue, Setting

LEAST_SHARE = 0.02  # of the step; less is not worth a word
MOST_CONFIGURATIONS = 20  # further ones are in summary.csv


def diagnosis_markdown(results: StudyResults, answer: str) -> str:
    """What to do first, status and advice for each configuration, then the findings of other trials."""
    lines = [f"# Diagnosis: {_text(results.study.name)}", "", _text(answer), ""]
    lines += _first_lines(results)
    lines += _table_lines(verification_table(results))
    shown = results.configurations[:MOST_CONFIGURATIONS]
    configurations = [line for each in shown for line in _configuration_lines(results, each)]
    lines += ["## Configurations", "", *configurations] if configurations else []
    lines += _table_lines(_findings_table(results))
    lines += _table_lines(failures_table(results))
    return "\n".join(lines).rstrip() + "\n"


def _first_lines(results: StudyResults) -> list[str]:
    """The findings on the headline and the study, what explains the most time first, and their fixes."""
    if not results.diagnosis:
        return []
    of = ""
    if results.headline is not None:
        of = f": {results.headline_label} on {devices_of(results.headline.config)}"
    lines, verified = [f"## What to do first{of}", ""], results.verifications
    words = evidence_among(results.diagnosis)
    for number, each in enumerate(results.diagnosis, 1):
        fix = sentence(str(advice_of(each, verified)))
        typed = f" `{each.command}`" if each.command else ""
        found = f"{number}. **{sentence(each.name)}** ({cost(each)}): {_text(words(each))}."
        lines.append(f"{found} {_text(fix)}.{typed}")
        lines += [f"    - {markdown_code(frame)}" for frame in each.frames]
        test = verification_of(each, verified)
        is_open = test is None or not test.ruled_out
        lines += [f"   Try: `{_options(each.change)}`"] if each.change and is_open else []
    return [*lines, ""]


def _findings_table(results: StudyResults) -> Table:
    """The findings on other trials."""
    columns: list[Column[Finding]] = [
        Column("trial", lambda each: each.trial_id),
        Column("finding", lambda each: each.name),
        Column("cost", cost),
        Column("evidence", evidence),
        Column("next step", next_step),
    ]
    first = [id(each) for each in results.diagnosis]
    others = [each for each in results.findings if id(each) not in first]
    return make_table("Findings on other trials", "", columns, others)


def _options(change: Mapping[str, KnobValue]) -> str:
    """The change as options of ``scaling``."""
    tables = {name: "knobs" if name in Setting.model_fields else "environment" for name in change}
    return " ".join(f"--set {tables[name]}.{name}={_toml(value)}" for name, value in change.items())


def _toml(value: KnobValue) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _table_lines(table: Table) -> list[str]:
    if not table.rows:
        return []
    shown = without_constant(table)
    return [f"## {shown.title}", "", render.to_markdown(shown), _text(shown.caption), ""]


def _configuration_lines(results: StudyResults, each: DiagnosedConfiguration) -> list[str]:
    record, scaling = each.record, results.scaling(each.record)
    if scaling.status is None or scaling.speedup is None:
        return []
    many, label = devices_of(record.config), results.label(record)
    lines = [f"### {label}: {scaling.status}", "", f"- Speed-up {times(scaling.speedup)} on {many}."]
    lost = _lost_words(results.waterfalls[record.trial_id])
    lines += [f"- Where the time goes: {lost}."] if lost else []
    lines.append(f"- {_text(_advice(results, each))}")
    return [*lines, ""]


def _lost_words(waterfall: Waterfall | None) -> str:
    """The ideal part of the step, and the parts that are certain, the largest first."""
    if waterfall is None or waterfall.parts.ideal is None:
        return ""
    ideal = waterfall.parts.ideal.value / waterfall.step_time_s.value
    lost = [f"{percent(share)} {name}" for name, share in lost_parts(waterfall, LEAST_SHARE)]
    return ", ".join([f"{ideal:.0%} of the step is what one device needs", *lost])


def _advice(results: StudyResults, each: DiagnosedConfiguration) -> str:
    """What to change: what this study measured, nearest first, else what can be predicted."""
    scaling = results.scaling(each.record)
    if each.nearest and scaling.efficiency is not None:
        words = [
            f"{changes_words(change.changes)} reaches {change.efficiency.value:.0%} efficiency instead of "
            f"{scaling.efficiency.value:.0%}, at {change.throughput_ratio.value:.2f} times the samples/s"
            for change in each.nearest
        ]
        keep = "What scales better" if scaling.status is Status.GOOD else "What to change"
        return f"{keep}: {', or '.join(words)}."
    if scaling.status is Status.EXCELLENT:
        return "Nothing to change."
    for own in (found for found in each.findings if found.change and found.explains):
        test = verification_of(own, results.verifications)
        if test is None:
            return f"What to change, not measured: {next_step(own)}."
        if not test.ruled_out:
            return f"{advice_of(own, results.verifications)}."
    return nothing_better_words(len(results.configurations) - 1)


def nothing_better_words(num_others: int) -> str:
    """That none of the other configurations is better than one."""
    if num_others == 0:
        return "No other configuration was measured."
    if num_others == 1:
        return "The other configuration is not both faster and more efficient."
    return f"None of the {num_others:,} other configurations is both faster and more efficient."
