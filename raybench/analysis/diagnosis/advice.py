"""What to change: the nearest measured setting that is better, else a larger batch, predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def advised(case: Case, findings: Sequence[Finding], better: Sequence[Change]) -> tuple[Finding, ...]:
    """The findings on costs of a step with a change that cures them: measured before predicted.

    ``better``: the measured settings that are better than the trial's, the nearest first.
    """
    measured = next((each for each in better if _is_typed(each.changes)), None)
    predicted = None if measured else larger_batch(case)
    return tuple(
        _advised(case, each, measured, predicted) if each.name in PER_STEP else each for each in findings
    )


def _is_typed(changes: Mapping[str, KnobValue]) -> bool:
    """Whether knobs and variables alone are changed: a placement is none."""
    return "placement" not in changes


def _advised(case: Case, finding: Finding, measured: Change | None, predicted: LargerBatch | None) -> Finding:
    efficiency = case.scaling.efficiency
    if efficiency is None:
        return finding
    if measured is not None:
        words = (
            f"{changes_words(measured.changes)}: measured at {pct(measured.efficiency)} efficiency, "
            f"{factor(measured.throughput_ratio)} the samples/s; this has {pct(efficiency)}"
        )
        ratio = measured.throughput_ratio
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
