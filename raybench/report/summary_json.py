"""``summary.json``: what a report says, for programs: answer, points, findings, verdicts, environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, JsonValue

from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.report.answer import Clause
from raybench.report.finding_texts import evidence, next_step
from raybench.spec.base import Model

SUMMARY_VERSION = "1.1"  # MAJOR.MINOR: readers of an older minor go on working


class Interval(Model):
    """A value with its 95% interval; in JSON, which has no infinity, null."""

    value: float | None
    low: float | None
    high: float | None
    n: int = Field(description="rounds, or seeds, behind it")


class FoundCause(Model):
    """A finding of the headline's setting or of the study, or wrong losses of another setting."""

    name: str = Field(description="as docs/reference.md lists them")
    reason: str = Field(description="which of several causes or fixes it has; empty where there is one")
    severity: str = Field(description="note, warning or problem")
    trial_id: str
    values: dict[str, float | None] = Field(description="its figures, named with their units")
    explains_s: Interval | None = Field(description="of the step, in s; null: no time can be given")
    evidence: str
    next_step: str
    change: dict[str, JsonValue] | None = Field(description="knobs and values that would be changed")
    command: str = Field(description="what to type; empty where there is nothing")


class SettingVerdict(Model):
    """A setting against the default on the most devices."""

    setting: str
    trial_id: str
    verdict: str = Field(description="better, worse, as good, not known yet")
    gain: Interval = Field(description="relative, in samples/s; the intervals hold for all settings at once")
    visits_to_tell: int | None = Field(description="times as many visits, where it is not known yet")


class SummaryDocument(Model):
    """What ``summary.json`` holds."""

    schema_version: str = SUMMARY_VERSION
    study: str
    question: str
    is_smoke: bool = Field(description="whether sizes are those of --smoke: a test of the tool")
    answer: list[Clause]
    points: list[dict[str, JsonValue]] = Field(description="the rows of summary.csv; null where unknown")
    findings: list[FoundCause] = Field(description="what explains the most time first")
    verdicts: list[SettingVerdict]
    environment: dict[str, JsonValue] = Field(description="what environment.json holds")


def summary_json(results: StudyResults, answer: Sequence[Clause], environment: Mapping[str, Any]) -> str:
    """The text of ``summary.json``."""
    document = SummaryDocument(
        study=results.study.name,
        question=results.study.question,
        is_smoke=results.study.is_smoke,
        answer=list(answer),
        points=[dict(each.row()) for each in results.summaries],
        findings=causes(results),
        verdicts=[
            SettingVerdict(
                setting=results.label(each),
                trial_id=each.trial_id,
                verdict=str(results.gains[each.trial_id].verdict),
                gain=_interval(results.gains[each.trial_id].gain),
                visits_to_tell=results.gains[each.trial_id].to_tell,
            )
            for each in results.sound
            if each.trial_id in results.gains
        ],
        environment=json.loads(json.dumps(dict(environment), default=str)),
    )
    return document.model_dump_json(indent=2) + "\n"


def summary_schema() -> str:
    """The JSON schema of ``summary.json``."""
    return json.dumps(SummaryDocument.model_json_schema(), indent=2) + "\n"


def benchmark_json(results: StudyResults) -> str:
    """Step times in ms, one of each point, as github-action-benchmark reads ``customSmallerIsBetter``."""
    of_trial = {record.trial_id: record for record in results.complete}
    entries = []
    for each in results.summaries:
        if each.step_time_s is None or each.step_time_low_s is None or each.step_time_high_s is None:
            continue
        low, high = each.step_time_low_s * 1e3, each.step_time_high_s * 1e3
        label = results.label(of_trial[each.trial_id])
        efficiency = "" if each.efficiency is None else f", efficiency {each.efficiency:.1%}"
        entries.append(
            {
                "name": f"{each.study}: {devices_words(each.world_size)}, {label}",
                "unit": "ms",
                "value": each.step_time_s * 1e3,
                "range": f"{low:.4g} to {high:.4g}",
                "extra": f"{each.throughput_samples_per_s:,.0f} samples/s{efficiency}, n={each.rounds}",
            }
        )
    return json.dumps(entries, indent=2) + "\n"


def causes(results: StudyResults) -> list[FoundCause]:
    """The diagnosis, what explains the most time first."""
    return [
        FoundCause(
            name=str(each.name),
            reason=str(each.reason or ""),
            severity=str(each.severity),
            trial_id=each.trial_id,
            values=dict(each.values),
            explains_s=_interval(each.explains) if each.explains else None,
            evidence=evidence(each),
            next_step=next_step(each),
            change=dict(each.change) if each.change is not None else None,
            command=each.command,
        )
        for each in results.diagnosis
    ]


def _interval(found: Estimate) -> Interval:
    return Interval(value=found.value, low=found.low, high=found.high, n=found.n)
