"""The diagnosis of a study: every trial's findings with what to change, and what trials say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from raybench.analysis.findings.batch import BatchTooSmall
from raybench.analysis.findings.case import Around, Beside, Case, OfStudy, OfTrial, WholeStudy
from raybench.analysis.findings.communication import ExposedTransfers, Interference
from raybench.analysis.findings.compute import Contention, CostlyWrapper, DataBound, OtherProcesses
from raybench.analysis.findings.configurations import (
    DiagnosedConfiguration,
    advised,
    better_settings,
    diagnose_configurations,
)
from raybench.analysis.findings.evenness import Straggler, TakingTurns, UnevenDevices
from raybench.analysis.findings.finding import Finding, FindingName, Kind, Need, ranked
from raybench.analysis.findings.of_study import (
    Failed,
    NoGain,
    NotReached,
    PrecisionWithoutGain,
    SeveralDevices,
)
from raybench.analysis.findings.steadiness import (
    LittleMemory,
    LossesDisagree,
    NarrowPCIe,
    NoisyMeasurement,
    NotAllMeasured,
    Oversubscribed,
    QuotaUsedUp,
    RareSlowSteps,
    Throttling,
)
from raybench.analysis.findings.unattributed import NegativeScaling, NotDivided
from raybench.analysis.reference import scaling_first
from raybench.analysis.resolve import Facts
from raybench.records.record import TrialRecord
from raybench.spec.placement import Placement

_Where = tuple[int, Placement]


@dataclass(frozen=True)
class Diagnosis:
    """What a study says is wrong."""

    findings: tuple[Finding, ...]  # of every trial
    first: tuple[Finding, ...]  # of the headline and the study, what explains the most time first
    configurations: tuple[DiagnosedConfiguration, ...]
    not_examined: tuple[tuple[FindingName, Need], ...]  # kinds of findings that the headline has no data for


def diagnose_study(results: Facts, around: Around) -> Diagnosis:
    """The findings of every setting, the headline's ranked, every configuration with its own."""
    better = better_settings(results)
    beside = _beside(results)
    cases = {record.trial_id: _case(results, record, beside, around) for record in results.references}
    of_trial = {
        trial_id: ranked(advised(case, diagnose(case), better.get(trial_id, ())))
        for trial_id, case in cases.items()
    }
    whole = WholeStudy(results, around)
    for finding in _of_kinds(whole, OF_COMPARED):
        if finding.trial_id in of_trial:
            of_trial[finding.trial_id] = ranked([*of_trial[finding.trial_id], finding])
    of_study = _of_kinds(whole, OF_STUDY)
    headline = of_trial[results.headline.trial_id] if results.headline else ()
    return Diagnosis(
        findings=(*(finding for found in of_trial.values() for finding in found), *of_study),
        first=ranked([*headline, *of_study]),
        configurations=diagnose_configurations(results, better, of_trial),
        not_examined=_not_examined(cases[results.headline.trial_id]) if results.headline else (),
    )


def _not_examined(case: Case) -> tuple[tuple[FindingName, Need], ...]:
    """What could be found, and what it needs."""
    of_several = {ExposedTransfers: FindingName.COMMUNICATION_BOUND, TakingTurns: FindingName.JITTER}
    every = ((kind, need) for kind in OF_TRIAL if (need := kind.needs(case)) is not None)
    return tuple((of_several.get(kind) or cast(FindingName, kind.name), need) for kind, need in every)


def _case(results: Facts, record: TrialRecord, beside: Mapping[_Where, Beside], around: Around) -> Case:
    assert record.steps is not None
    return Case(
        record,
        record.steps,
        results.scaling(record),
        results.waterfalls[record.trial_id],
        beside.get(_where(record), Beside()),
        around,
        tuple(each.steps for each in results.visits(record) if each is not record and each.steps),
    )


def _where(record: TrialRecord) -> _Where:
    return record.config.world_size, record.config.placement


def _beside(results: Facts) -> dict[_Where, Beside]:
    """Of each world size and placement, what its trials say of each other; those of the curve first."""
    there: dict[_Where, list[TrialRecord]] = {}
    every = tuple(scaling_first(results.references))
    for record in every:
        there.setdefault(_where(record), []).append(record)
    several = tuple(record for record in every if record.config.world_size > 1)
    beside = {where: Beside.of(records, results.fit, results.scaling) for where, records in there.items()}
    return {where: replace(each, elsewhere=several) for where, each in beside.items()}


def _of_kinds(whole: WholeStudy, kinds: Sequence[type[OfStudy]]) -> list[Finding]:
    return [each.finding() for kind in kinds for each in kind.condition(whole)]


# what is to be said against a trial's numbers, whatever it is for
DOUBTS: tuple[type[OfTrial], ...] = (
    Oversubscribed, NoisyMeasurement, OtherProcesses, QuotaUsedUp, Throttling, NarrowPCIe, LittleMemory,
    UnevenDevices,
    Straggler, LossesDisagree, NotAllMeasured,
)  # fmt: skip
OF_TRIAL: tuple[type[OfTrial], ...] = (
    *DOUBTS, ExposedTransfers, Interference, Contention, CostlyWrapper, TakingTurns, DataBound,
    BatchTooSmall, NotDivided, NegativeScaling, RareSlowSteps,
)  # fmt: skip
# on a trial against others of its study
OF_COMPARED: tuple[type[OfStudy], ...] = (PrecisionWithoutGain,)
OF_STUDY: tuple[type[OfStudy], ...] = (
    Failed, NoGain, SeveralDevices, NotReached,
)  # fmt: skip
EVERY: tuple[type[Kind], ...] = (*OF_TRIAL, *OF_COMPARED, *OF_STUDY)


def findings(record: TrialRecord) -> list[Finding]:
    """The findings on a record by itself; nothing for one that is not complete."""
    return [] if record.steps is None else list(diagnose(Case.of(record, record.steps)))


def diagnose(case: Case) -> tuple[Finding, ...]:
    """The findings on a trial, what explains the most time first; no time is explained by two of them."""
    every = (case.finding(kind) for kind in OF_TRIAL)
    return ranked(finding for finding in every if finding is not None)
