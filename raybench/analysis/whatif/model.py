"""A measured trial as a model of its step: what it computes and sends, and what the simulation misses.

The measured step less the simulated one is carried along. Where the step is slower than simulated,
transfers and computing are taken to be in each other's way (gloo's threads need cores), as far as that
explains it; what is left is a constant. Every other way to carry it along (all of it a constant; all of it
slower transfers) is an alternative, as is each end of what the wire may be: each is brought to the same
measured step, and by how much its prediction differs is what the prediction's interval holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from raybench.analysis.estimates.rounds import level, series, slowest_step_s
from raybench.analysis.whatif.buckets import BucketCap, assign
from raybench.analysis.whatif.schedule import Compute, Schedule, Wire, simulate
from raybench.records.measurements import GradientTimeline
from raybench.records.record import TrialRecord

MOST_SLOWDOWN = 0.9
BISECTIONS = 40


@dataclass(frozen=True)
class StepModel:
    """A step, as one trial has shown it."""

    compute: Compute
    parameter_bytes: tuple[int, ...]  # in the order in which their gradients are ready
    bytes_share: float  # of a gradient's bytes, that travel
    wire: Wire
    left_s: float = 0.0  # of the measured step, that the simulation misses
    most_slowdown: float = MOST_SLOWDOWN  # that transfers may be of computing

    def schedule(self, cap: BucketCap) -> Schedule:
        """The step with buckets of ``cap`` MiB, simulated."""
        buckets = assign(self.parameter_bytes, cap)
        sizes = [self.bytes_share * sum(self.parameter_bytes[index] for index in each) for each in buckets]
        return simulate(self.compute, buckets, sizes, self.wire)

    def step_s(self, cap: BucketCap) -> float:
        """The same with what the simulation misses; never less than the step without transfers."""
        return max(self.schedule(cap).step_s + self.left_s, self.compute.step_s)


Way = Callable[[StepModel, BucketCap, float], StepModel]


def as_constant(model: StepModel, cap: BucketCap, measured_s: float) -> StepModel:
    """All that the simulation misses of ``measured_s`` is the same whatever the buckets."""
    return replace(model, left_s=measured_s - model.schedule(cap).step_s)


def as_slower_computing(model: StepModel, cap: BucketCap, measured_s: float) -> StepModel:
    """Computing is slowed while something travels, as far as that explains it; the rest is a constant.

    By no more than the cores' worth of time that transfers take where they run alone, if that is known.
    """

    def slowed(slowdown: float) -> StepModel:
        return replace(model, wire=replace(model.wire, slowdown=slowdown))

    return as_constant(_until(slowed, 0.0, model.most_slowdown, cap, measured_s), cap, measured_s)


def as_slower_transfers(model: StepModel, cap: BucketCap, measured_s: float) -> StepModel:
    """Transfers are slower, or faster, than alone, as far as that explains it; the rest is a constant."""

    def slower(factor: float) -> StepModel:
        wire = model.wire
        return replace(
            model, wire=replace(wire, latency_s=wire.latency_s * factor, s_per_byte=wire.s_per_byte * factor)
        )

    return as_constant(_until(slower, 0.25, 4.0, cap, measured_s), cap, measured_s)


WAYS: tuple[Way, ...] = (
    as_slower_computing,
    as_constant,
    as_slower_transfers,
)  # the first is the one that is told


@dataclass(frozen=True)
class KnownCompute:
    """A step without transfers, and half the interval of the logarithm of its length."""

    compute: Compute
    half: float

    def bent(self) -> list[Compute]:
        """The step as long, and as short, as it may be."""
        return [scaled(self.compute, math.exp(sign * self.half)) for sign in (1, -1)]


def compute_of(record: TrialRecord) -> KnownCompute | None:
    """The step without transfers of a trial that has a timeline, at the level of its rounds; None without.

    Marks cost time, so the timeline says the shares, and ``local`` on the slowest rank the whole.
    """
    measurement = record.steps
    if measurement is None or measurement.gradient_timeline is None:
        return None
    values = series(measurement, "local", slowest_step_s)
    if values is None:
        return None
    timed = _of_timeline(measurement.gradient_timeline)
    whole_s = level(values)
    return KnownCompute(scaled(timed, whole_s.value / timed.step_s), whole_s.log_half_width)


def scaled(compute: Compute, factor: float) -> Compute:
    """Every part of a step by one factor."""
    return Compute(
        compute.before_s * factor,
        tuple(each * factor for each in compute.ready_s),
        compute.tail_s * factor,
        compute.after_s * factor,
    )


def _of_timeline(timeline: GradientTimeline) -> Compute:
    tail_s = max(timeline.backward_s - timeline.ready_s[-1], 0.0)
    return Compute(timeline.before_s, timeline.ready_s, tail_s, timeline.after_s)


def _until(
    changed: Callable[[float], StepModel], low: float, high: float, cap: BucketCap, measured_s: float
) -> StepModel:
    """``changed`` by as much, within the bounds, that the step, which grows with it, is the measured one."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if changed(middle).schedule(cap).step_s < measured_s:
            low = middle
        else:
            high = middle
    return changed(low)
