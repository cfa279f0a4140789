"""Each configuration's status, where its time goes, and the nearest measured setting that is better.

Many settings are compared in pairs, and the best are named: intervals of a pair are simultaneous, so that
what is better by chance alone is named in 5% of studies at most. A setting's own figures are those that stand
everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from raybench.analysis.findings.batch import larger_batch
from raybench.analysis.findings.case import Case
from raybench.analysis.findings.finding import SLOW_WAYS, Basis, Finding, FindingName
from raybench.analysis.resolve import Facts
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue

# Of more settings these, the most efficient, and the headline are compared with all others: documents show no
# further ones, and every pair of thousands takes many minutes.
MOST_COMPARED = 200


@dataclass(frozen=True)
class Change:
    """Another measured configuration that scales better and is faster, whatever it differs in.

    Both beyond the intervals: a slower model scales better too. The efficiency by search.minimum_gain at
    least. The ratios' intervals are simultaneous over all pairs that are compared.
    """

    changes: Mapping[str, KnobValue]  # the knobs and variables in which it differs, with its values
    # the same to be set: with accumulation of the same passes the batch grows too
    settings: Mapping[str, KnobValue]
    efficiency: Estimate  # of the other configuration
    efficiency_ratio: Estimate
    throughput_ratio: Estimate


@dataclass(frozen=True)
class DiagnosedConfiguration:
    """One setting on several devices."""

    record: TrialRecord
    changes: tuple[Change, ...]  # the fewest knobs first, then the most gain; one for each set of knobs
    findings: tuple[Finding, ...]  # what explains the most time first

    @property
    def nearest(self) -> tuple[Change, ...]:
        """The changes of the fewest knobs."""
        fewest = min((len(each.changes) for each in self.changes), default=0)
        return tuple(each for each in self.changes if len(each.changes) == fewest)


def better_settings(results: Facts) -> dict[str, tuple[Change, ...]]:
    """Of each setting on the headline's several devices: the measured ones that are better, nearest first.

    By trial id, the most efficient first. Of the ``MOST_COMPARED`` first and the headline; of others none.
    """
    several = [record for record in results.compared if record.config.world_size > 1]
    distinct = sorted(several, key=lambda record: -_efficiency_of(results, record))
    looked_at = [*distinct[:MOST_COMPARED], *filter(None, [results.headline])]
    least = 1 + results.study.search.minimum_gain
    pairs = [
        (other, record)
        for record in looked_at
        for other in distinct[:MOST_COMPARED]
        if _efficiency_of(results, other) >= least * _efficiency_of(results, record) > 0
    ]
    found = {record.trial_id: dict[frozenset[str], Change]() for record in distinct}
    efficiencies, rates = results.fit.efficiency_ratios(pairs), results.fit.rate_ratios(pairs)
    for (other, record), efficiency, rate in zip(pairs, efficiencies, rates, strict=True):
        if min(efficiency.low, rate.low) > 1:
            change = _change(results, record, other, efficiency, rate)
            found[record.trial_id].setdefault(frozenset(change.changes), change)
    return {
        trial_id: tuple(
            sorted(changes.values(), key=lambda each: (len(each.changes), -each.efficiency_ratio.value))
        )
        for trial_id, changes in found.items()
    }


def _efficiency_of(results: Facts, record: TrialRecord) -> float:
    efficiency = results.scaling(record).efficiency
    return efficiency.value if efficiency else 0.0


def _change(
    results: Facts, record: TrialRecord, other: TrialRecord, efficiency_ratio: Estimate, rate_ratio: Estimate
) -> Change:
    """``other`` as a change of ``record``."""
    efficiency = results.scaling(other).efficiency
    assert efficiency is not None
    changes = other.config.differences(record.config)
    return Change(
        changes=changes,
        settings=changes | other.config.setting.differences(record.config.setting),
        efficiency=efficiency,
        efficiency_ratio=efficiency_ratio,
        throughput_ratio=rate_ratio,
    )


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
    """The findings on costs of a step with a change that fixes them: measured before predicted.

    ``better``: the measured settings that are better than the trial's, the nearest first. What is better for
    another reason than the finding's stands with the configuration only.
    """
    if case.scaling.efficiency is None:
        return tuple(findings)
    return tuple(_advised(case, each, better) for each in findings)


def _advised(case: Case, finding: Finding, better: Sequence[Change]) -> Finding:
    if finding.name not in PER_STEP or finding.reason in SLOW_WAYS:
        return finding
    measured = next((each for each in better if _can_fix(finding.name, each.changes)), None)
    if measured is not None:
        change, ratio, basis = dict(measured.settings), measured.throughput_ratio, Basis.MEASURED
    elif finding.change is None and (predicted := larger_batch(case)) is not None:
        change = {"batch_size": predicted.batch_size}
        ratio, basis = predicted.throughput_ratio, Basis.PREDICTED
    else:
        return finding
    return replace(finding, change=change, predicted=ratio, basis=basis)


def _can_fix(cause: FindingName, changes: Mapping[str, KnobValue]) -> bool:
    """Whether all that is changed can touch the cause; a placement is not a knob or variable to set."""
    if "placement" in changes:
        return False
    touching = PER_STEP[cause]
    return touching is None or all(
        name in touching or (touching is _TRANSFERS and name.startswith(TRANSPORT)) for name in changes
    )
