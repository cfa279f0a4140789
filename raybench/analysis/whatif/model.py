"""A measured trial as a model of its step: what it computes and sends, and what the simulation misses.

The measured step less the simulated one is carried along. Where transfers and computing need the same
cores, the trial has timed what they take from each other: that is simulated, and what is left is a constant.
Without such a measurement a step slower than simulated is taken to be slowed so, as far as that explains
it. Every other way to carry it along (all of it a constant; all of it slower computing, or slower transfers)
is an alternative, as is each end of what the wire, the computing and their contention may be: each is
brought to the same measured step, and by how much its prediction differs is what the prediction's interval
holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from raybench.analysis.estimates.rounds import level, mean_rank_s, series, slowest_step_s
from raybench.analysis.whatif.buckets import BucketCap, assign
from raybench.analysis.whatif.schedule import Compute, Schedule, Wire, simulate
from raybench.analysis.whatif.shared_cores import step_alone_s
from raybench.records.measurements import GradientTimeline, StepsResult
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


WAYS: tuple[Way, ...] = (as_slower_computing, as_constant, as_slower_transfers)


@dataclass(frozen=True)
class KnownCompute:
    """A step without transfers, and half the interval of the logarithm of its length.

    ``drift`` is that of a further measurement: the same steps were timed again after the rounds, and how far
    they had moved by then, beyond what the rounds say, is how far they may move until the next trial.
    """

    compute: Compute
    half: float
    drift: float

    def bent(self) -> list[Compute]:
        """The step as long, and as short, as it may be."""
        return self._ends(self.half)

    def drifted(self) -> list[Compute]:
        """The step as long, and as short, as it may be in another trial."""
        return self._ends(self.drift)

    def _ends(self, half: float) -> list[Compute]:
        return [scaled(self.compute, math.exp(sign * half)) for sign in (1, -1)]


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
    timeline = measurement.gradient_timeline
    timed, whole_s = _of_timeline(timeline), level(values)
    compute = scaled(timed, whole_s.value / timed.step_s)
    half = whole_s.log_half_width
    return KnownCompute(compute, half, math.hypot(math.sqrt(2) * half, _moved(measurement, timeline)))


def _moved(measurement: StepsResult, timeline: GradientTimeline) -> float:
    """The logarithm of steps after the rounds over those in them, its size: means over ranks."""
    values = series(measurement, "local", mean_rank_s)
    if values is None:
        return 0.0
    in_rounds_s = level(values).value
    if timeline.contention is not None:
        return abs(math.log(step_alone_s(timeline.contention) / in_rounds_s))
    # marks cost time, so of the timeline's own steps only shorter ones say anything
    return max(math.log(in_rounds_s / _of_timeline(timeline).step_s), 0.0)


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
