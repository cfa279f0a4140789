"""What a step costs whatever its batch, and what keeps a device busy: launches, small batches, memory.

A tenth of the step stays whatever the batch: launches and Python, or a device not filled. Known by the
smaller batch of each device under strong scaling, by the batches measured, or by a GPU that is idle. A GPU
busy for less than 70% of the time waits for whoever launches its work; where that is not told, the two are
one finding, which a larger batch cures.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Self

from raybench.analysis.diagnosis.case import Case, OfTrial, PartOfStep
from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep, Severity
from raybench.analysis.diagnosis.words import ms, pct
from raybench.analysis.estimates.statistics import Estimate, inverse

FIXED_LEAST = (
    0.10  # of the step: every step has some fixed cost; less than this no batch is worth changing for
)
IDLE_LEAST = 0.30  # of the time in which a GPU could work: below 70% busy it waits for whoever feeds it
BUSY, FEW_FLOPS = 0.90, 0.25  # busy all the time, with a quarter of what it computes in matrix products


@dataclass(frozen=True)
class LaunchBound(PartOfStep):
    """GPUs wait for the process that launches their work."""

    name = FindingName.LAUNCH_BOUND
    one_device_has_it = True
    busy: float  # share of the time

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """They are busy for less than 70% of the time, and it is not the loader that they wait for."""
        busy = _busy(case)
        idle = _idle(case, busy)
        return None if busy is None or idle is None else cls(case, idle, busy)

    def evidence(self) -> Evidence:
        """How busy they are."""
        return Evidence(
            f"GPUs are busy for {self.busy:.0%} of the time: {ms(self.part_s)} of the step, "
            f"{pct(self.share)}, they wait for the process that launches their work",
            {"idle_s": self.part_s.value, "busy_share": self.busy},
        )

    def next_step(self) -> NextStep:
        """Fewer launches."""
        words = "fewer and larger kernels: compile, a larger batch, no Python in the step"
        if self.case.config.setting.compile:
            return NextStep(words)
        return NextStep(words, {"compile": True}, self.without_it)


@dataclass(frozen=True)
class BatchTooSmall(PartOfStep):
    """A tenth of the step stays whatever the batch."""

    name = FindingName.BATCH_TOO_SMALL
    one_device_has_it = True
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

    def evidence(self) -> Evidence:
        """What stays, and how it is known."""
        case, part_s = self.case, self.part_s
        if self.by_strong_scaling:
            samples = f"{case.config.batch_size:,} samples a device"
            how = f"{samples} take {ms(part_s)} longer than their part of the whole batch"
        else:
            how = (
                f"{ms(part_s)} of the step stay whatever the batch, by the line through the batches measured"
            )
        is_told = _busy(case) is not None
        told = "" if is_told else "; launches, Python and a device that is not filled are not told apart"
        return Evidence(
            f"{how}, {pct(self.share)} of the step{told}",
            {"fixed_s": part_s.value, "fixed_share": self.share.value},
        )

    def next_step(self) -> NextStep:
        """How much larger, ``advice`` says, but where larger ones were measured and brought nothing."""
        if self.case.larger_batches:
            return NextStep(
                "no larger batch that was measured is surely better: fewer and larger kernels (compile), or "
                "a larger batch than those"
            )
        return NextStep("a larger batch")


@dataclass(frozen=True)
class MemoryBound(OfTrial):
    """A device that is busy all the time with few of the FLOP/s of its matrix products: memory binds."""

    name = FindingName.MEMORY_BOUND
    busy: float  # share of the time
    peak_flops_per_s: float
    peak_share: Estimate  # of the matrix peak

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Busy for 90% of the time with certainly less than a quarter of the matrix peak."""
        flops, peak, ideal = case.steps.flops_per_step, case.steps.matrix_peak_flops_per_s, case.parts.ideal
        busy = _busy(case)
        if not flops or not peak or ideal is None or busy is None or busy < BUSY:
            return None
        share = inverse(ideal).scaled(flops / peak)
        if case.config.scaling == "strong" or share.high >= FEW_FLOPS:
            return None
        return cls(case, busy, peak, share)

    @property
    def severity(self) -> Severity:
        """How much of the step it takes is not known."""
        return Severity.NOTE

    def evidence(self) -> Evidence:
        """How busy, with how much."""
        return Evidence(
            f"busy for {self.busy:.0%} of the time at {pct(self.peak_share)} of the matrix peak of "
            f"{self.peak_flops_per_s * 1e-12:.1f} TFLOP/s: reading and writing memory takes the time, not "
            "arithmetic",
            {"flops_share": self.peak_share.value, "busy_share": self.busy},
        )

    def next_step(self) -> NextStep:
        """Fewer bytes for the same arithmetic."""
        return NextStep(
            "fewer passes over memory: fused kernels (compile), a narrower precision, channels_last for "
            "images",
            None if self.case.config.setting.compile else {"compile": True},
        )


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
    mine, theirs = computed[own].beside(computed[next_]), computed[next_].beside(computed[own])
    value = mine.value * (1 + weight) - theirs.value * weight
    half = ((mine.half_width * (1 + weight)) ** 2 + (theirs.half_width * weight) ** 2) ** 0.5
    return Estimate(value, value - half, value + half, min(mine.n, theirs.n))


def _busy(case: Case) -> float | None:
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
