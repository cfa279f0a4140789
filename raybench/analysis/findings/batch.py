"""What a step costs whatever its batch, and which larger batch to try."""

from __future__ import annotations

from raybench.analysis.findings.case import Case
from raybench.analysis.findings.finding import Finding, FindingName, Reason
from raybench.analysis.largest_batch import MEMORY_SHARE
from raybench.analysis.stats.statistics import Estimate, sum_of
from raybench.spec.workloads import ScriptSpec

# of the step: every step has some fixed cost; for less than this no batch is worth changing
FIXED_LEAST = 0.10


def batch_too_small(case: Case) -> Finding | None:
    """A tenth of the step stays whatever the batch: by strong scaling or by batches, the larger one."""
    small, fixed = case.parts.small_batch, fixed_by_batches(case)
    ways = [(each, each is small) for each in (small, fixed) if each is not None]
    known = [way for way in ways if case.is_notable(way[0], FIXED_LEAST)]
    if not known:
        return None
    part_s, by_strong_scaling = max(known, key=lambda way: way[0].value)
    reason = Reason.STRONG_SCALING if by_strong_scaling else None
    rate, larger = case.scaling.throughput_samples_per_s.value, case.larger_batches
    if larger and max(larger) <= rate:
        reason = Reason.LARGER_IS_NO_BETTER
    return case.part(FindingName.BATCH_TOO_SMALL, part_s, "fixed", reason=reason)


def fixed_by_batches(case: Case) -> Estimate | None:
    """Where the line through the smallest two batches of one device meets no samples, in s.

    From the trial's own batch and the next larger one: c_1 - (c_2 - c_1) / (b_2 - b_1) b_1. A step that grows
    faster than in proportion has none.
    """
    computed, own = case.alone, case.samples
    larger = [batch for batch in computed if batch > own]
    if own not in computed or not larger or case.config.scaling == "strong":
        return None
    next_ = min(larger)
    weight = own / (next_ - own)
    return sum_of(computed[own].scaled(1 + weight), computed[next_].scaled(-weight))


def twice_the_batch(case: Case) -> int | None:
    """Twice the batch, as the knob: what to try against costs of a step on several devices.

    None where a larger one was measured, whose gain says whether it helps, where it would not fit, and
    where a script does not take it.
    """
    if case.config.world_size == 1 or case.larger_batches:
        return None
    workload = case.config.workload
    if isinstance(workload, ScriptSpec) and "batch_size" not in workload.placeholders:
        return None
    used, limits = case.steps.device_memory_bytes, case.steps.memory_limit_bytes
    if case.is_cuda and used and limits and 2 * max(used) > MEMORY_SHARE * min(limits):
        return None
    return 2 * case.config.setting.batch_size
