"""The diagnosis of a study: every trial's findings with what to change, and what trials say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from raybench.analysis.findings.advice import advised, better_settings
from raybench.analysis.findings.batch import batch_too_small
from raybench.analysis.findings.case import Around, Case, Peers, Rule, WholeStudy
from raybench.analysis.findings.communication import communication_bound, interference, unattributed_loss
from raybench.analysis.findings.compute import contention, costly_wrapper, data_bound, other_processes
from raybench.analysis.findings.evenness import (
    host_synchronization,
    jitter,
    little_memory,
    losses_disagree,
    narrow_pcie,
    not_all_measured,
    rare_slow_steps,
    still_warming,
    straggler,
    throttling,
    too_few_cores,
)
from raybench.analysis.findings.finding import Finding, FindingName, Need, ranked
from raybench.analysis.findings.of_study import failed
from raybench.analysis.reference import scaling_first
from raybench.analysis.resolve import Facts
from raybench.records.record import TrialRecord
from raybench.spec.placement import Placement

_Where = tuple[int, Placement]

# on a trial, each by the name of its finding
RULES: Mapping[FindingName, Rule] = {
    FindingName.TOO_FEW_CORES: too_few_cores,
    FindingName.OTHER_PROCESSES: other_processes,
    FindingName.THROTTLING: throttling,
    FindingName.NARROW_PCIE: narrow_pcie,
    FindingName.STILL_WARMING: still_warming,
    FindingName.HOST_SYNCHRONIZATION: host_synchronization,
    FindingName.LITTLE_MEMORY: little_memory,
    FindingName.STRAGGLER: straggler,
    FindingName.LOSSES_DISAGREE: losses_disagree,
    FindingName.NOT_ALL_MEASURED: not_all_measured,
    FindingName.COMMUNICATION_BOUND: communication_bound,
    FindingName.INTERFERENCE: interference,
    FindingName.CONTENTION: contention,
    FindingName.COSTLY_WRAPPER: costly_wrapper,
    FindingName.JITTER: jitter,
    FindingName.DATA_BOUND: data_bound,
    FindingName.BATCH_TOO_SMALL: batch_too_small,
    FindingName.UNATTRIBUTED_LOSS: unattributed_loss,
    FindingName.RARE_SLOW_STEPS: rare_slow_steps,
}


@dataclass(frozen=True)
class Diagnosis:
    """What a study says is wrong."""

    findings: tuple[Finding, ...]  # of every trial
    first: tuple[Finding, ...]  # of the headline and the study, what explains the most time first
    not_examined: tuple[tuple[FindingName, Need], ...]  # kinds of findings that the headline has no data for


def diagnose_study(results: Facts, around: Around) -> Diagnosis:
    """The findings of every setting, the headline's ranked."""
    better, peers, headline = better_settings(results), _peers(results), results.headline
    cases = {record.trial_id: _case(results, record, peers, around) for record in results.references}
    of_trial = {
        trial_id: ranked(advised(case, diagnose(case), better if case.record is headline else ()))
        for trial_id, case in cases.items()
    }
    of_study = failed(WholeStudy(results, around))  # what was not reached its driver knows
    return Diagnosis(
        findings=(*(finding for found in of_trial.values() for finding in found), *of_study),
        first=ranked([*(of_trial[headline.trial_id] if headline else ()), *of_study]),
        not_examined=_not_examined(cases[headline.trial_id]) if headline else (),
    )


def diagnose(case: Case) -> tuple[Finding, ...]:
    """The findings on a trial, what explains the most time first; no time is explained by two of them."""
    return ranked(found for rule in RULES.values() if (found := case.finding(rule)) is not None)


def _not_examined(case: Case) -> tuple[tuple[FindingName, Need], ...]:
    """What could be found, and what it needs."""
    results = ((name, case.result(rule)) for name, rule in RULES.items())
    return tuple((name, result) for name, result in results if isinstance(result, Need))


def _case(results: Facts, record: TrialRecord, peers: Mapping[_Where, Peers], around: Around) -> Case:
    assert record.steps is not None
    return Case(
        record,
        record.steps,
        results.scaling(record),
        results.waterfalls[record.trial_id],
        peers[_where(record)],
        around,
        tuple(each.steps for each in results.visits(record) if each is not record and each.steps),
    )


def _where(record: TrialRecord) -> _Where:
    return record.config.world_size, record.config.placement


def _peers(results: Facts) -> dict[_Where, Peers]:
    """Of each world size and placement, what its trials say of each other; those of the curve first."""
    there: dict[_Where, list[TrialRecord]] = {}
    every = tuple(scaling_first(results.references))
    for record in every:
        there.setdefault(_where(record), []).append(record)
    several = tuple(record for record in every if record.config.world_size > 1)
    return {
        where: replace(Peers.of(records, results.fit, results.scaling), elsewhere=several)
        for where, records in there.items()
    }
