"""The diagnosis of a study: the headline's findings with what to change, and what trials say together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.findings import batch, communication, compute, evenness
from raybench.analysis.findings.case import Around, Case, Rule
from raybench.analysis.findings.finding import (
    SLOW_WAYS,
    Finding,
    FindingName,
    Need,
    Reason,
    Severity,
    ranked,
)
from raybench.analysis.labels import trial_words
from raybench.analysis.other_load import load_of
from raybench.analysis.reference import grouped, scaling_first
from raybench.analysis.resolve import Facts
from raybench.records.record import State, TrialRecord
from raybench.spec.study import COMPILING
from raybench.spec.workloads import ScriptSpec

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
    of_study = [*failed(results, around.goes_on), *not_reached(results, around.left_out, around.goes_on)]
    if headline is None:
        return Diagnosis(ranked(of_study))
    case = Case(headline, results.fit, tuple(scaling_first(results.rivals)), around)
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


# --- failures, and what was not reached

GOES_ON = "--resume --output DIR"
MORE_TIME = 2.0  # times the time-out that was not enough


def command_to_go_on(results: Facts, goes_on: str, *also: State) -> str:
    """One command for all that failed or is missing: what may end otherwise is tried again, and the rest.

    Memory that was not enough is not enough again, so it is in it where nothing is complete, or requested
    (``also``).
    """
    failed, tries = results.failed, list[State](("crashed", "timeout", *also))
    if not results.complete:
        tries.append("oom")
    states = [each for each in dict.fromkeys(tries) if any(record.state == each for record in failed)]
    words = [goes_on or GOES_ON]
    words += [f"--retry {','.join(states)}"] if states else []
    longest_s = dict[str, float]()  # by the field that says how long
    for record in failed:
        if record.state == "timeout":
            request = record.study_request
            field = f"{'training' if request.kind == 'training' else 'measure'}.timeout_seconds"
            is_longer = request.kind != "training" and request.config.setting.compile
            field_s = request.timeout_s / (COMPILING if is_longer else 1)
            longest_s[field] = max(longest_s.get(field, 0.0), field_s)
    words += [f"--set {field}={MORE_TIME * longest:g}" for field, longest in longest_s.items()]
    return " ".join(words)


_VARYING = re.compile(r"0x[0-9a-fA-F]+|[\d,]*\d")  # addresses, shapes, ranks, bytes


def alike(failed: Iterable[TrialRecord]) -> list[list[TrialRecord]]:
    """The failed records of each cause together, in the order in which the causes came.

    One cause: what was raised, and where; numbers in the words may differ.
    """
    groups = grouped(failed, lambda each: (each.state, _VARYING.sub("#", each.reason or ""), each.frame))
    return list(groups.values())


# each way to end without figures, named as its reason
FAILED: tuple[State, ...] = ("crashed", "timeout", "oom", "invalid")


def failed(results: Facts, goes_on: str = "") -> list[Finding]:
    """A finding for each cause, by how the trials ended; the first of them represents them."""
    return [
        _failed(results, goes_on, state, group)
        for state in FAILED
        for group in alike([record for record in results.failed if record.state == state])
    ]


def _failed(results: Facts, goes_on: str, state: State, group: Sequence[TrialRecord]) -> Finding:
    """A problem where nothing else is there; that a batch is too large is an answer, and a note."""
    severity = Severity.NOTE if state == "oom" else Severity.WARNING
    first, is_script = group[0], isinstance(results.study.workload, ScriptSpec)
    named = {
        "first": trial_words(results.study, first.study_request),
        "error": " ".join((first.reason or "").split()),
        "then": "resume, or start again if its arguments are wrong" if is_script else "resume",
    }
    return Finding(
        FindingName.FAILED,
        severity if results.complete else Severity.PROBLEM,
        first.trial_id,
        {"num_trials": float(len(group))},
        reason=Reason(state),
        named=named,
        # what is not valid is so again, unless a script has been changed
        command="" if state == "invalid" and not is_script else command_to_go_on(results, goes_on, state),
        frame=first.frame,
    )


def not_reached(results: Facts, left_out: Sequence[str], goes_on: str) -> list[Finding]:
    """What was requested and not measured: the answer may be among it."""
    if not left_out:
        return []
    named, command = {"left_out": ", ".join(left_out)}, command_to_go_on(results, goes_on)
    return [Finding(FindingName.NOT_REACHED, Severity.WARNING, "", {}, named=named, command=command)]
