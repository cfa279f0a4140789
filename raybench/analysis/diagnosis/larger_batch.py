"""What a larger batch would bring, predicted from what was measured: bounds, not a model.

Per-step costs stay when the batch grows, compute grows with it. How much compute grows is bounded from both
sides. From above: k times the samples take at most k times as long, since they can be done in k pieces. From below:
no less than a smaller batch; k times the arithmetic at the measured peak (the roofline of Williams, Waterman and
Patterson 2009, CACM 52(4)); and, with two batches measured, the line through the two largest, as the price of a
further sample does not fall once a device is busy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.estimates.efficiency import GOOD
from raybench.analysis.estimates.statistics import Estimate

MOST_TIMES = 32  # the batch that was measured; further away the bounds say nothing
MEMORY_SHARE = 0.9  # of a device's memory, as for batch_size = "max"


@dataclass(frozen=True)
class LargerBatch:
    """One larger batch; the values are the geometric middle of bounds, the intervals are the bounds."""

    batch_size: int  # as the knob: per device in weak scaling, global in strong
    efficiency: Estimate
    throughput_ratio: Estimate  # over the measured batch
    basis: str  # of the bounds, in words


@dataclass(frozen=True)
class _Bounds:
    low: float
    high: float


def larger_batch(case: Case) -> LargerBatch | None:
    """The smallest doubling of the batch with which efficiency is good for certain, else possible.

    None where the trial has no baseline or no batch would do: what is lost grows with the batch.
    """
    now, computed = case.scaling.efficiency, case.alone_s
    if now is None or case.config.world_size == 1 or not computed:
        return None
    doublings = [2**power for power in range(1, int(math.log2(MOST_TIMES)) + 1)]
    tried = [_times(case, k, computed) for k in doublings if k <= _most_in_memory(case)]
    known = [each for each in tried if each is not None]
    good = [each for each in known if each.efficiency.low >= GOOD]
    good = good or [each for each in known if each.efficiency.high >= GOOD]
    chosen = good[0] if good else max(known, key=lambda each: each.efficiency.high, default=None)
    if chosen is None or chosen.efficiency.high < now.value * 1.02:
        return None
    return chosen


def _times(case: Case, k: int, computed: Mapping[int, Estimate]) -> LargerBatch | None:
    """What ``k`` times the batch would bring."""
    config, parts = case.config, case.parts
    if parts.ideal is None or case.samples not in computed:
        return None
    alone = computed[case.samples]
    grown = _compute(case, k, computed)
    growth = _Bounds(grown.low / alone.value, grown.high / alone.value)
    bounds = [_efficiency(case, growth.low, worst=True), _efficiency(case, growth.high, worst=False)]
    steps_s = [_step_s(case, growth.high, worst=True), _step_s(case, growth.low, worst=False)]
    slowest, fastest = (k * case.step_s / each for each in steps_s)
    n = case.scaling.step_time_s.n
    return LargerBatch(
        batch_size=k * config.setting.batch_size,
        efficiency=_between(min(bounds), max(bounds), n),
        throughput_ratio=_between(min(slowest, fastest), max(slowest, fastest), n),
        basis=_basis(case, computed),
    )


def _between(low: float, high: float, n: int) -> Estimate:
    return Estimate(math.sqrt(low * high), low, high, n)


def _compute(case: Case, k: int, computed: Mapping[int, Estimate]) -> _Bounds:
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
    return _Bounds(min(low, high) * (1 - error), high * (1 + error))


def _efficiency(case: Case, growth: float, *, worst: bool) -> float:
    ideal_s = _ideal_s(case)
    return growth * ideal_s / _step_s(case, growth, worst=worst)


def _step_s(case: Case, growth: float, *, worst: bool) -> float:
    """The step with ``growth`` times the compute, by the ends of its parts' intervals that are worst, or best.

    What computes side by side or is unknown grows with compute at worst; at best more compute hides more transfers,
    all but the smallest bucket.
    """
    parts = case.parts

    def end(part: Estimate | None) -> float:
        return 0.0 if part is None else max(part.high if worst else part.low, 0.0)

    ideal_s = _ideal_s(case)
    exposed_s = end(parts.exposed_communication)
    if not worst:
        exposed_s = max(min(exposed_s, _smallest_bucket_s(case)), exposed_s - (growth - 1) * ideal_s)
    grows_at_worst_s = end(parts.skew) + end(parts.undivided)
    stays_s = end(parts.small_batch) + end(parts.wrapper) + exposed_s
    return (
        growth * (ideal_s + end(parts.contention)) + stays_s + grows_at_worst_s * (growth if worst else 1.0)
    )


def _ideal_s(case: Case) -> float:
    assert case.parts.ideal is not None  # it was looked at before
    return case.parts.ideal.value


def _smallest_bucket_s(case: Case) -> float:
    """What the smallest bucket takes at least: nothing hides the last one."""
    found, buckets = case.waterfall, case.steps.bucket_bytes
    if found is None or found.replay_s is None or not buckets:
        return 0.0
    return found.replay_s.low * min(buckets) / sum(buckets)


def _most_in_memory(case: Case) -> float:
    """How many times the batch surely fits: memory grows no faster than the batch. Infinite: not told."""
    used, limits = case.steps.device_memory_bytes, case.steps.memory_limit_bytes
    if not case.is_cuda or not used or not limits:
        return math.inf
    return min(MEMORY_SHARE * limit / own for own, limit in zip(used, limits, strict=False))


def _basis(case: Case, computed: Mapping[int, Estimate]) -> str:
    if len(computed) >= 2:
        return "compute by the line through the batches measured at least, in proportion to the batch at most"
    if case.steps.flops_per_step and case.steps.matrix_peak_flops_per_s:
        return "compute grows to the peak's time for so much arithmetic at least, in proportion to the batch at most"
    return "one batch was measured: compute stays at least, grows in proportion to the batch at most"
