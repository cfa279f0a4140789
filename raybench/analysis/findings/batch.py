"""What a step costs whatever its batch, what keeps a device busy, and what a larger batch would bring."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, Self

from raybench.analysis.findings.case import Case, OfTrial, PartOfStep
from raybench.analysis.findings.finding import FindingName, Need, Remedy, Severity
from raybench.analysis.scaling import GOOD
from raybench.analysis.stats.statistics import Estimate, inverse

# of the step: every step has some fixed cost; less than this no batch is worth changing for
FIXED_LEAST = 0.10
IDLE_LEAST = 0.30  # of the time in which a GPU could work: below 70% busy it waits for whoever feeds it
BUSY, FEW_FLOPS = 0.90, 0.25  # busy all the time, with a quarter of what it computes in matrix products


@dataclass(frozen=True)
class LaunchBound(PartOfStep):
    """GPUs wait for the process that launches their work."""

    name = FindingName.LAUNCH_BOUND
    busy: float  # share of the time

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """They are busy for less than 70% of the time, and it is not the loader that they wait for."""
        busy = busy_share(case)
        idle = _idle(case, busy)
        return None if busy is None or idle is None else cls(case, idle, busy)

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        return Need.UTILIZATION if case.is_cuda and busy_share(case) is None else None

    @property
    def values(self) -> dict[str, float]:
        return {"idle_s": self.part_s.value, "busy_share": self.busy}

    @property
    def remedy(self) -> Remedy:
        if self.case.config.setting.compile:
            return Remedy()
        return Remedy({"compile": True}, self.without_it)


@dataclass(frozen=True)
class BatchTooSmall(PartOfStep):
    """A tenth of the step stays whatever the batch."""

    name = FindingName.BATCH_TOO_SMALL
    by_strong_scaling: bool  # else by the line through the batches measured

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """By either way of knowing, the larger one; nothing where GPUs are known to wait for launches."""
        small, fixed = case.parts.small_batch, _fixed_by_batches(case)
        ways = [(each, each is small) for each in (small, fixed) if each is not None]
        known = [way for way in ways if case.is_worth_telling(way[0], FIXED_LEAST)]
        if not known or case.finding(LaunchBound) is not None:
            return None
        part_s, by_strong_scaling = max(known, key=lambda way: way[0].value)
        return cls(case, part_s, by_strong_scaling)

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        known = (case.parts.small_batch, _fixed_by_batches(case))
        return None if any(each is not None for each in known) else Need.BATCHES

    @property
    def values(self) -> dict[str, float]:
        return {"fixed_s": self.part_s.value, "fixed_share": self.share.value}


@dataclass(frozen=True)
class MemoryBound(OfTrial):
    """A device that is busy all the time with few of the FLOP/s of its matrix products: memory binds."""

    name = FindingName.MEMORY_BOUND
    severity = Severity.NOTE  # how much of the step it takes is not known
    busy: float  # share of the time
    peak_flops_per_s: float
    peak_share: Estimate  # of the matrix peak

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Busy for 90% of the time with certainly less than a quarter of the matrix peak."""
        flops, peak, ideal = case.steps.flops_per_step, case.steps.matrix_peak_flops_per_s, case.parts.ideal
        busy = busy_share(case)
        if not flops or not peak or ideal is None or busy is None or busy < BUSY:
            return None
        share = inverse(ideal).scaled(flops / peak)
        if case.config.scaling == "strong" or share.high >= FEW_FLOPS:
            return None
        return cls(case, busy, peak, share)

    @property
    def values(self) -> dict[str, float]:
        return {"flops_share": self.peak_share.value, "busy_share": self.busy}

    @property
    def remedy(self) -> Remedy:
        return Remedy(None if self.case.config.setting.compile else {"compile": True})


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
    mine, theirs = computed[own].time_s, computed[next_].time_s
    value = mine.value * (1 + weight) - theirs.value * weight
    half = ((mine.half_width * (1 + weight)) ** 2 + (theirs.half_width * weight) ** 2) ** 0.5
    return Estimate(value, value - half, value + half, min(mine.n, theirs.n))


def busy_share(case: Case) -> float | None:
    """The share of the time in which the GPUs work, mean over ranks; None where nobody tells, or on CPUs."""
    told = [each for each in case.steps.device_utilization or () if each is not None]
    return fmean(told) if told and case.is_cuda else None


def _idle(case: Case, busy: float | None) -> Estimate | None:
    """What GPUs wait for work, in s of the step; the interval is from the busiest rank to the least busy."""
    if busy is None or 1 - busy < IDLE_LEAST:
        return None
    told = [each for each in case.steps.device_utilization or () if each is not None]
    ends = [(1 - each) * case.step_s for each in (busy, max(told), min(told))]
    data = case.phases().get("data")
    waited_s = data.value if data else 0.0  # a loader's wait is no launch's
    found = Estimate(ends[0] - waited_s, ends[1] - waited_s, ends[2] - waited_s, len(told))
    return found if case.is_worth_telling(found, FIXED_LEAST) else None


MOST_TIMES = 32  # the batch that was measured; further away the bounds say nothing
NEARLY = 0.9  # of the efficiency that the largest batch looked at could have
LEAST_GAIN = 0.05  # of the efficiency, in the middle of the bounds: less is nothing to try
MEMORY_SHARE = 0.9  # of a device's memory, as for batch_size = "max"


# what bounds the compute of a larger batch from below
BoundedBy = Literal["batches", "peak", "nothing"]


@dataclass(frozen=True)
class LargerBatch:
    """One larger batch; the values are the geometric middle of bounds, the intervals are the bounds."""

    batch_size: int  # as the knob: per device in weak scaling, global in strong
    efficiency: Estimate
    throughput_ratio: Estimate  # over the measured batch
    bounded_by: BoundedBy


@dataclass(frozen=True)
class _Bounds:
    low: float
    high: float


def larger_batch(case: Case) -> LargerBatch | None:
    """The smallest doubling of the batch with which efficiency is good for certain, else possibly.

    Where it never is, the smallest that reaches nine tenths of what the largest could reach.
    None where the trial has no baseline or no batch would do: what is lost grows with the batch. None too
    where so large a batch was measured, or a larger batch is not what is predicted of it.
    """
    now, computed = case.scaling.efficiency, case.alone_s
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
    config, parts = case.config, case.parts
    if parts.ideal is None or case.samples not in computed:
        return None
    alone, bounds = computed[case.samples], _compute(case, k, computed)
    now, n = case.scaling.efficiency, case.scaling.step_time_s.n
    if now is None or min(now.low, bounds.low) <= 0:  # known so coarsely that it bounds nothing
        return None
    # a larger share of today's step that is ideal makes the efficiency better, and less there is to be won
    steps = [
        _step(case, ideal, growth / alone.value, worst=worst)
        for ideal, growth, worst in itertools.product(
            (now.low, min(now.high, 1.0)), (bounds.low, bounds.high), (True, False)
        )
    ]
    efficiencies, ratios = [each.efficiency for each in steps], [k / each.over_now for each in steps]
    return LargerBatch(
        batch_size=k * config.setting.batch_size,
        efficiency=_between(min(efficiencies), max(efficiencies), n),
        throughput_ratio=_between(min(ratios), max(ratios), n),
        bounded_by=_bounded_by(case, computed),
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


@dataclass(frozen=True)
class _Step:
    """A step at another batch."""

    over_now: float  # its time over that of the batch that was measured
    efficiency: float


def _step(case: Case, ideal: float, growth: float, *, worst: bool) -> _Step:
    """The step with ``growth`` times the compute; ``ideal`` is the share of today's that one device needs.

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
    step = growth * (ideal + grows) + max(stays, 0.0)
    return _Step(step, growth * ideal / step)


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


def _bounded_by(case: Case, computed: Mapping[int, Estimate]) -> BoundedBy:
    if len(computed) >= 2:
        return "batches"
    has_peak = case.steps.flops_per_step and case.steps.matrix_peak_flops_per_s
    return "peak" if has_peak else "nothing"
