"""What to change: the nearest measured setting that is better, else a larger batch, predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.configurations import Change
from raybench.analysis.diagnosis.findings import Finding, FindingName
from raybench.analysis.diagnosis.larger_batch import LargerBatch, larger_batch
from raybench.analysis.diagnosis.words import factor, factor_range, pct, pct_range
from raybench.analysis.labels import changes_words, knob_words
from raybench.spec.knobs import KnobValue

# Costs of a step, whatever its samples: more of them in a step is a cure. Others have their own.
PER_STEP = (
    FindingName.NEGATIVE_SCALING,
    FindingName.COMMUNICATION_BOUND,
    FindingName.LATENCY_BOUND,
    FindingName.BANDWIDTH_BOUND,
    FindingName.BATCH_TOO_SMALL,
    FindingName.LAUNCH_BOUND,
    FindingName.COSTLY_WRAPPER,
    FindingName.NOT_DIVIDED,
)
_SAMPLES = {"batch_size", "gradient_accumulation"}
_TRANSFERS = _SAMPLES | {
    "strategy",
    "bucket_cap_mb",
    "gradient_compression",
    "static_graph",
    "find_unused_parameters",
    "broadcast_buffers",
    "fsdp_reshard",
}
# Which knobs can touch which cause: a setting that differs in others too may be better for another reason.
# Causes that are not here are not known: whatever is better may cure them.
TOUCHING: Mapping[FindingName, Set[str]] = {
    FindingName.COMMUNICATION_BOUND: _TRANSFERS,
    FindingName.LATENCY_BOUND: _TRANSFERS,
    FindingName.BANDWIDTH_BOUND: _TRANSFERS,
    FindingName.BATCH_TOO_SMALL: _SAMPLES | {"compile", "num_threads"},
    FindingName.LAUNCH_BOUND: {"batch_size", "compile"},
    FindingName.COSTLY_WRAPPER: _SAMPLES
    | {
        "strategy",
        "bucket_cap_mb",
        "gradient_as_bucket_view",
        "static_graph",
        "find_unused_parameters",
        "broadcast_buffers",
    },
}
TRANSPORT = ("NCCL_", "GLOO_", "TORCH_NCCL_")  # variables that begin so are of the transfers


def advised(case: Case, findings: Sequence[Finding], better: Sequence[Change]) -> tuple[Finding, ...]:
    """The findings on costs of a step with a change that cures them: measured before predicted.

    ``better``: the measured settings that are better than the trial's, the nearest first. What is better for
    another reason than the finding's stands with the configuration alone.
    """
    found = []
    for each in findings:
        if each.name in PER_STEP:
            measured = next((other for other in better if _can_cure(each.name, other.changes)), None)
            each = _advised(case, each, measured, None if measured else larger_batch(case))
        found.append(each)
    return tuple(found)


def _can_cure(cause: FindingName, changes: Mapping[str, KnobValue]) -> bool:
    """Whether all that is changed can touch the cause; a placement is no knob or variable to set."""
    if "placement" in changes:
        return False
    touching = TOUCHING.get(cause)
    return touching is None or all(
        name in touching or (touching is _TRANSFERS and name.startswith(TRANSPORT)) for name in changes
    )


def _advised(case: Case, finding: Finding, measured: Change | None, predicted: LargerBatch | None) -> Finding:
    efficiency = case.scaling.efficiency
    if efficiency is None:
        return finding
    if measured is not None:
        words = (
            f"{changes_words(measured.changes)}: measured at {pct(measured.own_efficiency)} efficiency, "
            f"{factor(measured.throughput_ratio)} the samples/s; this has {pct(efficiency)}"
        )
        ratio = measured.predicted_ratio
        return replace(finding, next_step=words, change=dict(measured.settings), predicted=ratio)
    if predicted is None:
        return finding
    words = (
        f"{knob_words('batch_size', predicted.batch_size)}: {pct_range(predicted.efficiency)} efficiency "
        "predicted, "
        f"{factor_range(predicted.throughput_ratio)} the samples/s; this has {pct(efficiency)} "
        f"({predicted.basis})"
    )
    if finding.change is not None:
        return replace(finding, next_step=f"{finding.next_step}; or {words}")
    return replace(
        finding,
        next_step=f"{finding.next_step}. {words[0].upper()}{words[1:]}",
        change={"batch_size": predicted.batch_size},
        predicted=predicted.throughput_ratio,
    )
