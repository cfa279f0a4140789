"""What a step costs whatever its batch, and what a larger batch would bring."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from raybench.analysis.findings.case import Case
from raybench.analysis.findings.finding import Finding, FindingName, Need, Reason
from raybench.analysis.scaling import GOOD
from raybench.analysis.stats.statistics import Estimate

# of the step: every step has some fixed cost; for less than this no batch is worth changing
FIXED_LEAST = 0.10


def batch_too_small(case: Case) -> Finding | Need | None:
    """A tenth of the step stays whatever the batch: by strong scaling or by batches, the larger one."""
    small, fixed = case.parts.small_batch, _fixed_by_batches(case)
    ways = [(each, each is small) for each in (small, fixed) if each is not None]
    if not ways:
        return Need.BATCHES
    known = [way for way in ways if case.is_notable(way[0], FIXED_LEAST)]
    if not known:
        return None
    part_s, by_strong_scaling = max(known, key=lambda way: way[0].value)
    reason = Reason.STRONG_SCALING if by_strong_scaling else None
    rate, larger = case.scaling.throughput_samples_per_s.value, case.larger_batches
    # settings are compared on several devices; on one a larger batch that is faster is the fix
    if larger and (case.config.world_size > 1 or all(each.samples_per_s <= rate for each in larger)):
        reason = Reason.LARGER_IS_NO_BETTER
    values = {"fixed_s": part_s.value, "fixed_share": case.share(part_s)}
    return case.part(FindingName.BATCH_TOO_SMALL, part_s, values, reason=reason)


def _fixed_by_batches(case: Case) -> Estimate | None:
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
    mine, theirs = computed[own], computed[next_]
    value = mine.value * (1 + weight) - theirs.value * weight
    half = ((mine.half_width * (1 + weight)) ** 2 + (theirs.half_width * weight) ** 2) ** 0.5
    return Estimate(value, value - half, value + half, min(mine.n, theirs.n))


MOST_TIMES = 32  # the batch that was measured; further away the bounds say nothing
NEARLY = 0.9  # of the efficiency that the largest batch looked at could have
LEAST_GAIN = 0.05  # of the efficiency, in the middle of the bounds: less is nothing to try
MEMORY_SHARE = 0.9  # of a device's memory, as for batch_size = "max"


@dataclass(frozen=True)
class LargerBatch:
    """One larger batch; the values are the geometric middle of bounds, the intervals are the bounds."""

    batch_size: int  # as the knob: per device in weak scaling, global in strong
    efficiency: Estimate
    throughput_ratio: Estimate  # over the measured batch


def larger_batch(case: Case) -> LargerBatch | None:
    """The smallest doubling of the batch with which efficiency is good for certain, else possibly.

    Where it never is, the smallest that reaches nine tenths of what the largest could reach.
    None where the trial has no baseline or no batch would do: what is lost grows with the batch. None too
    where so large a batch was measured, or a larger batch is not what is predicted of it.
    """
    now, computed = case.scaling.efficiency, case.alone
    if now is None or case.config.world_size == 1 or not computed:
        return None
    doublings = [2**power for power in range(1, int(math.log2(MOST_TIMES)) + 1)]
    tried = [_times(case, k, computed) for k in doublings if k <= _most_in_memory(case)]
    known = [each for each in tried if each is not None]
    good = [each for each in known if each.efficiency.low >= GOOD]
    good = good or [each for each in known if each.efficiency.high >= GOOD]
    most = max((each.efficiency.high for each in known), default=0.0)
    nearly = [each for each in known if each.efficiency.high >= NEARLY * most]
    chosen = next(iter(good or nearly), None)
    if chosen is None or chosen.efficiency.value < now.value * (1 + LEAST_GAIN):
        return None
    return None if _is_measured_around(case, chosen) or _is_contradicted(case, now) else chosen


def _is_measured_around(case: Case, chosen: LargerBatch) -> bool:
    """Whether the batch lies between measured ones, which say more of it than bounds do."""
    return any(each.knob >= chosen.batch_size for each in case.larger_batches)


def _is_contradicted(case: Case, now: Estimate) -> bool:
    """Whether a larger batch that was measured brings nothing, in efficiency or in samples/s."""
    rate, least = case.scaling.throughput_samples_per_s.value, now.value * (1 + LEAST_GAIN)
    return any(each.samples_per_s <= rate or each.efficiency < least for each in case.larger_batches)


def _times(case: Case, k: int, computed: Mapping[int, Estimate]) -> LargerBatch | None:
    """What ``k`` times the batch would bring."""
    if case.parts.ideal is None or case.samples not in computed:
        return None
    alone, (least_s, most_s) = computed[case.samples], _compute(case, k, computed)
    now, n = case.scaling.efficiency, case.scaling.step_time_s.n
    if now is None or min(now.low, least_s) <= 0:  # known so coarsely that it bounds nothing
        return None
    # a larger share of today's step that is ideal makes the efficiency better, and less there is to be won
    efficiencies, ratios = list[float](), list[float]()
    for ideal, compute_s, worst in itertools.product(
        (now.low, min(now.high, 1.0)), (least_s, most_s), (True, False)
    ):
        growth = compute_s / alone.value
        step = _step(case, ideal, growth, worst=worst)
        efficiencies.append(growth * ideal / step)
        ratios.append(k / step)
    return LargerBatch(
        batch_size=k * case.config.setting.batch_size,
        efficiency=_between(min(efficiencies), max(efficiencies), n),
        throughput_ratio=_between(min(ratios), max(ratios), n),
    )


def _between(low: float, high: float, n: int) -> Estimate:
    return Estimate(math.sqrt(low * high), low, high, n)


def _compute(case: Case, k: int, computed: Mapping[int, Estimate]) -> tuple[float, float]:
    """Between what one device takes for ``k`` times the samples, in s."""
    wanted = k * case.samples
    below = sorted(batch for batch in computed if batch <= wanted)
    above = [batch for batch in computed if batch > wanted]
    high = min(computed[batch].value * wanted / batch for batch in below)
    high = min([high, *(computed[batch].high for batch in above)])
    low = max(computed[batch].value for batch in below)
    if len(below) >= 2:
        one, two = below[-2:]
        slope = (computed[two].value - computed[one].value) / (two - one)
        low = max(low, computed[two].value + slope * (wanted - two))
    flops, peak = case.steps.flops_per_step, case.steps.matrix_peak_flops_per_s
    if flops and peak:
        low = max(low, k * flops / peak)
    error = max(computed[batch].relative_half_width for batch in below[-2:])
    return min(low, high) * (1 - error), high * (1 + error)


def _step(case: Case, ideal: float, growth: float, *, worst: bool) -> float:
    """The step with ``growth`` times the compute, over today's; ``ideal`` is one device's share of today's.

    In shares of today's: what is ideal, what is lost to computing side by side and to waiting, which may grow
    with compute, and what stays: copies and transfers. At worst as much grows as the intervals allow, at best
    as little, and the further compute hides transfers, all but the smallest bucket.
    """
    parts, over = case.parts, 1 / case.step_s
    lost = max(1 - ideal, 0.0)

    def share(*named: Estimate | None) -> float:
        ends = (each.high if worst else each.low for each in named if each is not None)
        return min(sum(max(end, 0.0) for end in ends) * over, lost)

    if worst:
        grows = share(parts.contention, parts.skew, parts.undivided)
        stays = lost - grows
    else:
        grows = share(parts.contention)
        stays = lost - grows
        exposed = min(parts.exposed_communication.high * over, stays) if parts.exposed_communication else 0.0
        stays -= min((growth - 1) * ideal, max(exposed - _smallest_bucket_s(case) * over, 0.0))
    return growth * (ideal + grows) + max(stays, 0.0)


def _smallest_bucket_s(case: Case) -> float:
    """What the smallest bucket takes at least: nothing hides the last one."""
    found, buckets = case.waterfall, case.steps.bucket_bytes
    if found is None or found.replay_s is None or not buckets:
        return 0.0
    return found.replay_s.low * min(buckets) / sum(buckets)


def _most_in_memory(case: Case) -> float:
    """How many times the batch fits for certain: memory grows no faster than it. Infinite: unknown."""
    used, limits = case.steps.device_memory_bytes, case.steps.memory_limit_bytes
    if not case.is_cuda or not used or not limits:
        return math.inf
    return min(MEMORY_SHARE * limit / own for own, limit in zip(used, limits, strict=False))
