"""The diagnosis of a study: every trial's findings with what to change, and what trials say together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from raybench.analysis.findings import batch, communication, compute, evenness
from raybench.analysis.findings.case import Around, Case, Peers, Rule
from raybench.analysis.findings.finding import SLOW_WAYS, Finding, FindingName, Need, Severity, ranked
from raybench.analysis.findings.of_study import failed
from raybench.analysis.other_load import load_of
from raybench.analysis.reference import grouped, scaling_first
from raybench.analysis.resolve import Facts
from raybench.records.record import TrialRecord
from raybench.spec.placement import Placement

# on a trial: the function of one of these modules that is named as its finding
RULES: tuple[Rule, ...] = tuple(
    getattr(module, name.name.lower())
    for name in FindingName
    for module in (batch, communication, compute, evenness)
    if hasattr(module, name.name.lower())
)


@dataclass(frozen=True)
class Diagnosis:
    """What a study says is wrong."""

    findings: tuple[Finding, ...]  # of every trial
    first: tuple[Finding, ...]  # of the headline and the study, what explains the most time first
    not_examined: tuple[tuple[FindingName, Need], ...] = ()  # what the headline has no data for


def diagnose_study(results: Facts, around: Around) -> Diagnosis:
    """The findings of every setting, the headline's ranked."""
    headline, there = results.headline, grouped(scaling_first(results.references), _where)
    peers = {where: Peers.of(records, results.fit) for where, records in there.items()}
    cases = {
        record.trial_id: Case(record, results.fit, peers[_where(record)], around)
        for record in results.references
    }
    of_trial = {
        trial_id: ranked(_larger_batch(case, each) for each in diagnose(case))
        for trial_id, case in cases.items()
    }
    of_study = failed(results, around.goes_on)  # what was not reached its driver knows
    return Diagnosis(
        findings=(*(finding for found in of_trial.values() for finding in found), *of_study),
        first=ranked([*(of_trial[headline.trial_id] if headline else ()), *of_study]),
        not_examined=not_examined(cases[headline.trial_id]) if headline else (),
    )


def diagnose(case: Case) -> tuple[Finding, ...]:
    """The findings on a trial, what explains the most time first; no time is explained by two of them."""
    return ranked(found for rule in RULES if (found := case.finding(rule)) is not None)


def not_examined(case: Case) -> tuple[tuple[FindingName, Need], ...]:
    """The findings that nobody could look for in a trial, and what each needs."""
    parts, has_parts = case.parts, case.config.setting.strategy != "dp" and case.config.world_size > 1
    has_clocks = any(clock for each in case.rounds for clock in each.clock_mhz)
    fixed = parts.small_batch or batch.fixed_by_batches(case)
    missing = {
        FindingName.COMMUNICATION_BOUND: (Need.VARIANTS, has_parts and parts.exposed_communication is None),
        FindingName.JITTER: (Need.VARIANTS, has_parts and parts.skew is None),
        FindingName.COSTLY_WRAPPER: (Need.VARIANTS, has_parts and parts.wrapper is None),
        FindingName.CONTENTION: (Need.VARIANTS, has_parts and parts.contention is None),
        FindingName.DATA_BOUND: (Need.PHASES, not case.phases()),
        FindingName.BATCH_TOO_SMALL: (Need.BATCHES, fixed is None),
        FindingName.THROTTLING: (Need.CLOCKS, case.is_cuda and not has_clocks),
        FindingName.OTHER_PROCESSES: (Need.LOAD, load_of(case.config, case.visits) is None),
    }
    found = {each.name for each in diagnose(case)}
    return tuple(
        (name, need) for name, (need, is_missing) in missing.items() if is_missing and name not in found
    )


def _where(record: TrialRecord) -> tuple[int, Placement]:
    return record.config.world_size, record.config.placement


# Costs of a step, whatever its samples: more of them in a step is a fix. Other findings have their own fixes.
PER_STEP = (FindingName.COMMUNICATION_BOUND, FindingName.BATCH_TOO_SMALL, FindingName.COSTLY_WRAPPER)


def _larger_batch(case: Case, finding: Finding) -> Finding:
    """The finding with twice the batch as its change, where it is on a cost of a step and proposes none.

    That halves the cost of a sample: of less than a tenth of the step that is nothing to try.
    """
    is_little = finding.severity is Severity.NOTE
    if finding.change is not None or finding.name not in PER_STEP or finding.reason in SLOW_WAYS or is_little:
        return finding
    larger = batch.twice_the_batch(case) if case.scaling.efficiency is not None else None
    return finding if larger is None else replace(finding, change={"batch_size": larger})
