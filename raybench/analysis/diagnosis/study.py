"""The diagnosis of a study: every trial's findings with what to change, and what trials say together."""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass

from raybench.analysis.confirmations import Confirmation
from raybench.analysis.diagnosis.advice import advised
from raybench.analysis.diagnosis.case import Around, Beside, Case, Check
from raybench.analysis.diagnosis.configurations import (
    Change,
    DiagnosedConfiguration,
    better_settings,
    compared,
    diagnose_configurations,
)
from raybench.analysis.diagnosis.failures import failures
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity, ranked
from raybench.analysis.diagnosis.repeatability import unrepeated
from raybench.analysis.diagnosis.screening import without_findings
from raybench.analysis.diagnosis.stability import diagnose, doubts
from raybench.analysis.diagnosis.verifications import in_same_rounds
from raybench.analysis.diagnosis.which import diagnosed
from raybench.analysis.diagnosis.words import factor, pct
from raybench.analysis.disagreements import Disagreement
from raybench.analysis.estimates.efficiency import Verdict
from raybench.analysis.estimates.statistics import Estimate, inverse
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.objectives import OF_SPEED
from raybench.analysis.same_setting import change_key, scaling_first
from raybench.analysis.speaking import InSameRounds, rate_ratio
from raybench.records.record import TrialRecord
from raybench.spec.placement import Placement
from raybench.spec.study import Study

_Where = tuple[int, Placement]
NARROWER = ("bf16", "fp16", "tf32")
HELPS_AT_MOST = 1.05  # the whole interval below this: a precision that costs digits is for more


@dataclass(frozen=True)
class Diagnosis:
    """What a study says is wrong."""

    findings: tuple[Finding, ...]  # of every trial that was ``diagnosed``
    first: tuple[Finding, ...]  # of the headline and the study, what explains the most time first
    configurations: tuple[DiagnosedConfiguration, ...]


def diagnose_study(
    results: MeasuredStudy,
    confirmed: Sequence[Confirmation],
    around: Around,
    apart: Sequence[Disagreement] = (),
) -> Diagnosis:
    """The findings of every ``diagnosed`` trial, the headline's ranked, every configuration with its own.

    ``apart``: settings whose measurements disagree.
    """
    shared = in_same_rounds(results, confirmed)
    better = better_settings(results, shared)
    beside = _beside(results)
    looked_at = diagnosed(results)
    nothing = without_findings(looked_at)
    of_trial = {
        record.trial_id: _of_trial(results, record, better, beside, around, nothing.get(record.trial_id, ()))
        for record in looked_at
    }
    for finding in _precisions(results, shared, of_trial):
        of_trial[finding.trial_id] = ranked([*of_trial[finding.trial_id], finding])
    of_study = [
        *failures(results, around),
        *_no_gain(results.study, confirmed),
        *(unrepeated(results, each) for each in apart),
    ]
    headline = of_trial[results.headline.trial_id] if results.headline else ()
    return Diagnosis(
        findings=(*(finding for found in of_trial.values() for finding in found), *of_study),
        first=ranked([*headline, *of_study]),
        configurations=diagnose_configurations(results, better, of_trial),
    )


def _of_trial(
    results: MeasuredStudy,
    record: TrialRecord,
    better: Mapping[str, tuple[Change, ...]],
    beside: Mapping[_Where, Beside],
    around: Around,
    nothing: Sequence[Check],
) -> tuple[Finding, ...]:
    if record.steps is None:
        return ()
    alone = record.request.role in ("confirmation", "verification")  # nothing of one device beside them
    if record.trial_id not in results.scalings or alone:
        return doubts(Case.of(record, record.steps))
    case = Case(
        record,
        record.steps,
        results.scaling(record),
        results.waterfalls[record.trial_id],
        beside.get(_where(record), Beside()),
        around,
        {check.__name__: None for check in nothing},
    )
    return ranked(advised(case, diagnose(case), better.get(record.trial_id, ())))


def _where(record: TrialRecord) -> _Where:
    return record.config.world_size, record.config.placement


def _beside(results: MeasuredStudy) -> dict[_Where, Beside]:
    """Of each world size and placement, what its trials say of each other; those of the curve first."""
    there: dict[_Where, list[TrialRecord]] = {}
    for record in scaling_first(results.tried):
        there.setdefault(_where(record), []).append(record)
    return {where: Beside.of(records) for where, records in there.items()}


def _precisions(results: MeasuredStudy, shared: InSameRounds, among: Container[str]) -> list[Finding]:
    """Trials, ``among`` those of these ids, in a narrower precision that are not faster than fp32."""
    distinct = compared(results)
    in_fp32 = {_key_in_fp32(each): each for each in distinct if each.config.setting.precision == "fp32"}
    narrower = [each for each in distinct if each.config.setting.precision in NARROWER]
    pairs = [(each, in_fp32[key]) for each in narrower if (key := _key_in_fp32(each)) in in_fp32]
    found = []
    for record, other in pairs:
        if record.trial_id not in among:
            continue
        ratio = rate_ratio(record, other, results.scalings, shared, len(pairs)).ratio
        if ratio.high >= HELPS_AT_MOST:
            continue
        found.append(
            Finding(
                FindingName.PRECISION_WITHOUT_GAIN,
                Severity.NOTE,
                record.trial_id,
                f"{record.config.setting.precision} has {factor(ratio)} the samples/s of fp32 at the same "
                "setting",
                "precision fp32, or look at what the narrower one has no fast operations for",
                {"throughput_ratio": ratio.value},
                change={"precision": "fp32"},
                predicted=inverse(ratio),
            )
        )
    return found


def _key_in_fp32(record: TrialRecord) -> Hashable:
    setting = record.config.setting.model_copy(update={"precision": "fp32"})
    return change_key(record.config.model_copy(update={"setting": setting}))


def _no_gain(study: Study, confirmed: Sequence[Confirmation]) -> list[Finding]:
    """Winners that the confirmation does not call better; none where they were chosen for more than speed."""
    if not OF_SPEED.issuperset(study.search.objectives):
        return []
    return [
        Finding(
            FindingName.NO_SIGNIFICANT_GAIN,
            Severity.NOTE,
            each.record.trial_id,
            f"the best setting ({each.label}) has {_more(each.gain.gain)} samples/s than the default, "
            f"{'in the same rounds' if each.paired else 'measured apart'}",
            "keep the default: what was explored does not change it",
            {"gain_ratio": each.gain.gain.value},
        )
        for each in confirmed
        if each.gain.verdict is Verdict.NONE
    ]


def _more(gain: Estimate) -> str:
    """A relative difference: "1.2% [0.4, 2.0] more", or so much fewer."""
    return f"{pct(gain)} more" if gain.value >= 0 else f"{pct(gain.scaled(-1))} fewer"
