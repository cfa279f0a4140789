"""``diagnosis.md``: what to do first, the status of each configuration, what failed."""

from __future__ import annotations

from collections.abc import Mapping

from raybench.analysis.findings.finding import Finding, FindingName, Severity
from raybench.analysis.findings.verifications import verification_of
from raybench.analysis.labels import devices_of
from raybench.analysis.results import StudyResults
from raybench.report import render
from raybench.report.finding_texts import cost, evidence_among
from raybench.report.format import sentence, times
from raybench.report.render import markdown_code
from raybench.report.render import markdown_text as _text
from raybench.report.sections.trials import failures_table
from raybench.report.sections.verification import advice_of, verification_table
from raybench.report.table import Table, without_constant
from raybench.spec.knobs import KnobValue, Setting

MOST_CONFIGURATIONS = 20  # further ones are in summary.csv


def diagnosis_markdown(results: StudyResults, answer: str) -> str:
    """What to do first, the status of each configuration, then what failed."""
    lines = [f"# Diagnosis: {_text(results.study.name)}", "", _text(answer), ""]
    lines += _first_lines(results)
    lines += _table_lines(verification_table(results))
    lines += _status_lines(results)
    lines += _table_lines(failures_table(results))
    return "\n".join(lines).rstrip() + "\n"


def causes(results: StudyResults) -> list[Finding]:
    """The findings on the headline and the study; a little load is Ray's own, which nobody can stop."""
    return [
        each
        for each in results.diagnosis
        if each.name != FindingName.OTHER_PROCESSES or each.severity is not Severity.NOTE
    ]


def _first_lines(results: StudyResults) -> list[str]:
    """The findings on the headline and the study, what explains the most time first, and their fixes."""
    found = causes(results)
    if not found:
        return []
    of = ""
    if results.headline is not None:
        of = f": {results.headline_label} on {devices_of(results.headline.config)}"
    lines, verified = [f"## What to do first{of}", ""], results.verifications
    words = evidence_among(found)
    for number, each in enumerate(found, 1):
        fix = sentence(str(advice_of(each, verified)))
        typed = f" `{each.command}`" if each.command else ""
        cause = f"{number}. **{sentence(each.name)}** ({cost(each)}): {_text(words(each))}."
        lines.append(f"{cause} {_text(fix)}.{typed}")
        lines += [f"    - {markdown_code(each.frame)}"] if each.frame else []
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


def _table_lines(table: Table) -> list[str]:
    if not table.rows:
        return []
    shown = without_constant(table)
    return [f"## {shown.title}", "", render.to_markdown(shown), _text(shown.caption), ""]


def _status_lines(results: StudyResults) -> list[str]:
    """How each configuration on several devices scales, the most efficient first."""
    if results.compared_at == 1:
        return []
    found = ((record, results.scaling(record)) for record in results.compared)
    known = [
        (each.speedup, f"- {_text(results.label(record))}: {each.status}, speed-up {times(each.speedup)}.")
        for record, each in found
        if each.speedup is not None and each.status is not None
    ]
    ranked = sorted(known, key=lambda each: -each[0].value)[:MOST_CONFIGURATIONS]
    if not ranked:
        return []
    head = f"## Configurations on {devices_of(results.compared[0].config)}"
    return [head, "", *(line for _, line in ranked), ""]
