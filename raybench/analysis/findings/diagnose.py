"""The diagnosis of a study: the headline's findings with what to change, and what trials say together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from raybench.analysis.findings import batch, communication, compute, evenness
from raybench.analysis.findings.case import Around, Case, Peers, Rule
from raybench.analysis.findings.finding import SLOW_WAYS, Finding, FindingName, Need, Severity, ranked
from raybench.analysis.findings.of_study import failed
from raybench.analysis.other_load import load_of
from raybench.analysis.reference import scaling_first
from raybench.analysis.resolve import Facts

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

    first: tuple[Finding, ...]  # what explains the most time first
    not_examined: tuple[tuple[FindingName, Need], ...] = ()  # what the headline has no data for


def diagnose_study(results: Facts, around: Around) -> Diagnosis:
    """The headline's findings, the study's, and the losses of the settings that are compared with it."""
    headline = results.headline
    of_study = failed(results, around.goes_on)  # what was not reached its driver knows
    if headline is None:
        return Diagnosis(ranked(of_study))
    there = [each for each in results.compared if each.config.placement == headline.config.placement]
    case = Case(headline, results.fit, Peers.of(scaling_first(there), results.fit), around)
    found = [_larger_batch(case, each) for each in diagnose(case)]
    others = (Case(each, results.fit) for each in results.compared if each is not headline)
    found += filter(None, map(evenness.losses_disagree, others))
    if len(results.compared) > 1:  # else the strategy says which
        labels = {each.trial_id: results.label(each) for each in results.compared}
        named = FindingName.LOSSES_DISAGREE
        found = [replace(f, named={"strategy": labels[f.trial_id]}) if f.name is named else f for f in found]
    return Diagnosis(ranked([*found, *of_study]), not_examined(case))


def diagnose(case: Case) -> tuple[Finding, ...]:
    """The findings on a trial, what explains the most time first; no time is explained by two of them."""
    return ranked(found for rule in RULES if (found := case.finding(rule)) is not None)


def not_examined(case: Case) -> tuple[tuple[FindingName, Need], ...]:
    """The findings that nobody could look for in a trial, and what each needs."""
    parts, has_parts = case.parts, case.config.setting.strategy != "dp" and case.config.world_size > 1
    has_clocks = any(clock for each in case.rounds for clock in each.clock_mhz)
    fixed = parts.small_batch or batch.fixed_by_batches(case)
    larger = (each.config for each in case.fit.records if each.config.batch_size > case.config.batch_size)
    tried = any(each.differences(case.config).keys() == {"batch_size"} for each in larger)  # to verify, say
    missing = {
        FindingName.COMMUNICATION_BOUND: (Need.VARIANTS, has_parts and parts.exposed_communication is None),
        FindingName.JITTER: (Need.VARIANTS, has_parts and parts.skew is None),
        FindingName.COSTLY_WRAPPER: (Need.VARIANTS, has_parts and parts.wrapper is None),
        FindingName.CONTENTION: (Need.VARIANTS, has_parts and parts.contention is None),
        FindingName.DATA_BOUND: (Need.PHASES, not case.phases()),
        FindingName.BATCH_TOO_SMALL: (Need.BATCHES, fixed is None and not tried),
        FindingName.THROTTLING: (Need.CLOCKS, case.is_cuda and not has_clocks),
        FindingName.OTHER_PROCESSES: (Need.LOAD, load_of(case.config, case.visits) is None),
    }
    found = {each.name for each in diagnose(case)}
    return tuple(
        (name, need) for name, (need, is_missing) in missing.items() if is_missing and name not in found
    )


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
