"""The diagnosis of a study: every trial's findings with what to change, and what trials say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from raybench.analysis.findings.batch import batch_too_small, fixed_by_batches, twice_the_batch
from raybench.analysis.findings.case import Around, Case, Peers, Rule
from raybench.analysis.findings.communication import communication_bound, interference, unattributed_loss
from raybench.analysis.findings.compute import contention, costly_wrapper, data_bound, other_processes
from raybench.analysis.findings.evenness import (
    far_cores,
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
from raybench.analysis.findings.finding import SLOW_WAYS, Finding, FindingName, Need, Severity, ranked
from raybench.analysis.findings.of_study import failed
from raybench.analysis.load import load_of
from raybench.analysis.reference import scaling_first
from raybench.analysis.resolve import Facts
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Verdict
from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue
from raybench.spec.placement import Placement

_Where = tuple[int, Placement]

# on a trial, each by the name of its finding
RULES: Mapping[FindingName, Rule] = {
    FindingName.TOO_FEW_CORES: too_few_cores,
    FindingName.OTHER_PROCESSES: other_processes,
    FindingName.THROTTLING: throttling,
    FindingName.NARROW_PCIE: narrow_pcie,
    FindingName.FAR_CORES: far_cores,
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
    not_examined: tuple[tuple[FindingName, Need], ...] = ()  # what the headline has no data for


def diagnose_study(results: Facts, around: Around) -> Diagnosis:
    """The findings of every setting, the headline's ranked."""
    better, peers, headline = better_settings(results), _peers(results), results.headline
    cases = {
        record.trial_id: Case(record, results.fit, peers[_where(record)], around)
        for record in results.references
    }
    of_trial = {
        trial_id: ranked(advised(case, diagnose(case), better if case.record is headline else ()))
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
    return ranked(found for rule in RULES.values() if (found := case.finding(rule)) is not None)


def not_examined(case: Case) -> tuple[tuple[FindingName, Need], ...]:
    """The findings that nobody could look for in a trial, and what each needs."""
    parts, has_parts = case.parts, case.config.setting.strategy != "dp" and case.config.world_size > 1
    has_clocks = any(clock for each in case.steps.rounds for clock in each.clock_mhz)
    missing = {
        FindingName.COMMUNICATION_BOUND: (Need.VARIANTS, has_parts and parts.exposed_communication is None),
        FindingName.JITTER: (Need.VARIANTS, has_parts and parts.skew is None),
        FindingName.COSTLY_WRAPPER: (Need.VARIANTS, has_parts and parts.wrapper is None),
        FindingName.CONTENTION: (Need.VARIANTS, has_parts and parts.contention is None),
        FindingName.DATA_BOUND: (Need.PHASES, not case.phases()),
        FindingName.BATCH_TOO_SMALL: (
            Need.BATCHES,
            parts.small_batch is None and fixed_by_batches(case) is None,
        ),
        FindingName.THROTTLING: (Need.CLOCKS, case.is_cuda and not has_clocks),
        FindingName.OTHER_PROCESSES: (Need.LOAD, load_of(case.record) is None),
    }
    return tuple(
        (name, need)
        for name, (need, is_missing) in missing.items()
        if is_missing and case.finding(RULES[name]) is None
    )


def _where(record: TrialRecord) -> _Where:
    return record.config.world_size, record.config.placement


def _peers(results: Facts) -> dict[_Where, Peers]:
    """Of each world size and placement, what its trials say of each other; those of the curve first."""
    there: dict[_Where, list[TrialRecord]] = {}
    for record in scaling_first(results.references):
        there.setdefault(_where(record), []).append(record)
    return {where: Peers.of(records, results.fit) for where, records in there.items()}


@dataclass(frozen=True)
class Change:
    """A measured setting that is faster than the headline and scales better."""

    changes: Mapping[str, KnobValue]  # the knobs and variables in which it differs, with its values
    # the same to be set: with accumulation of the same passes the batch grows too
    settings: Mapping[str, KnobValue]
    throughput_ratio: Estimate  # its interval holds for all settings of the study at once


def better_settings(results: Facts) -> tuple[Change, ...]:
    """Those with a gain over the headline and more efficiency: the fewest changes first, then the most gain.

    None where the headline is not the default, over which gains are. A setting that is faster and scales
    worse removes no loss: it computes faster.
    """
    default = results.default
    if default is None or default is not results.headline:
        return ()
    found, own = list[Change](), _efficiency(results, default)
    for record in results.rivals:
        gain = results.gains.get(record.trial_id)
        if gain is None or gain.verdict is not Verdict.BETTER or _efficiency(results, record) <= own:
            continue
        changes = record.config.differences(default.config)
        settings = changes | record.config.setting.differences(default.config.setting)
        found.append(Change(changes, settings, gain.gain.plus(1)))
    return tuple(sorted(found, key=lambda each: (len(each.changes), -each.throughput_ratio.value)))


def _efficiency(results: Facts, record: TrialRecord) -> float:
    efficiency = results.scaling(record).efficiency
    return efficiency.value if efficiency else 0.0


_SAMPLES = {"batch_size", "gradient_accumulation"}
_TRANSFERS = _SAMPLES | {
    "strategy",
    "bucket_cap_mb",
    "gradient_compression",
    "static_graph",
    "find_unused_parameters",
    "broadcast_buffers",
    "skip_all_reduce_unused_params",
    "fsdp_reshard",
}
# Costs of a step, whatever its samples: more of them in a step is a fix. Each has the knobs that can touch
# it: a setting that differs in others too may be better for another reason. None: whatever is better may fix
# it. Other findings have their own fixes.
PER_STEP: Mapping[FindingName, Set[str] | None] = {
    FindingName.COMMUNICATION_BOUND: _TRANSFERS,
    FindingName.BATCH_TOO_SMALL: _SAMPLES | {"compile", "optimizer_kernels", "num_threads"},
    FindingName.COSTLY_WRAPPER: _SAMPLES
    | {
        "strategy",
        "bucket_cap_mb",
        "gradient_as_bucket_view",
        "batched_grad_copy",
        "static_graph",
        "find_unused_parameters",
        "broadcast_buffers",
    },
    FindingName.UNATTRIBUTED_LOSS: None,
}
TRANSPORT = ("NCCL_", "GLOO_", "TORCH_NCCL_")  # variables that begin so are of the transfers


def advised(case: Case, findings: Sequence[Finding], better: Sequence[Change]) -> tuple[Finding, ...]:
    """The findings on costs of a step with a change that fixes them: a measured one, else twice the batch.

    ``better``: the measured settings that are better than the trial's, the nearest first. What is better for
    another reason than the finding's is no fix of it.
    """
    if case.scaling.efficiency is None:
        return tuple(findings)
    return tuple(_advised(case, each, better) for each in findings)


def _advised(case: Case, finding: Finding, better: Sequence[Change]) -> Finding:
    if finding.name not in PER_STEP or finding.reason in SLOW_WAYS:
        return finding
    measured = next((each for each in better if _can_fix(finding.name, each.changes)), None)
    if measured is not None:
        ratio = measured.throughput_ratio
        return replace(finding, change=dict(measured.settings), predicted=ratio, is_measured=True)
    # it halves the cost of a sample: of less than a tenth of the step that is nothing to try
    is_little = finding.severity is Severity.NOTE
    if finding.change is not None or is_little or finding.name is FindingName.UNATTRIBUTED_LOSS:
        return finding
    batch = twice_the_batch(case)
    return finding if batch is None else replace(finding, change={"batch_size": batch})


def _can_fix(cause: FindingName, changes: Mapping[str, KnobValue]) -> bool:
    """Whether all that is changed can touch the cause."""
    touching = PER_STEP[cause]
    return touching is None or all(
        name in touching or (touching is _TRANSFERS and name.startswith(TRANSPORT)) for name in changes
    )
