"""A step of DDP as one measured trial has shown it: buckets, schedule, and what the simulation misses.

Buckets are torch's own rule, over the order in which gradients are ready
(``compute_bucket_assignment_by_size`` in torch/csrc/distributed/c10d/reducer.cpp, 2.11 and 2.14 alike, as
``rebuild_buckets`` calls it after the first step): a bucket takes gradients until it has reached its cap, so
the one that passes it is still in. Under the default the first bucket has a smaller cap (torch.distributed's
``_DEFAULT_FIRST_BUCKET_BYTES``), so that sending begins early.

Li et al. (2020), "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 13(12),
section 3.2: buckets are sent in one fixed order, each when all its gradients are ready and the one before
it was given away; the optimizer waits for the last. A message takes latency + bytes / bandwidth. What is
sent at once shares the bandwidth; how many are is the backend's: NCCL has one stream for a group, gloo two
threads (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: two for each interface).

Where transfers need the cores that compute, computing goes at ``1 - slowdown`` of its speed while something
travels.

The measured step less the simulated one is carried along: a step slower than simulated is taken to be slowed
by transfers, as far as that explains it. Every other way to carry it along (all of it a constant, or slower
transfers) is an alternative, as is each end of what the wire and the computing may be: each is brought to the
same measured step, and by how much its prediction differs is what the prediction's interval holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.stats.rounds import level, mean_rank_s, series, slowest_step_s
from raybench.records.record import TrialRecord
from raybench.records.results import GradientTimeline

MEBIBYTE = 2**20
FIRST_BUCKET_BYTES, DEFAULT_CAP_MB = MEBIBYTE, 25.0

BucketCap = float | str  # in MiB, or "default"


def bucket_limits(cap: BucketCap) -> tuple[int, ...]:
    """The caps in bytes of the first bucket, the second, ...; the last one is that of all further ones."""
    if isinstance(cap, str):
        return FIRST_BUCKET_BYTES, int(DEFAULT_CAP_MB * MEBIBYTE)
    return (int(cap * MEBIBYTE),)


def assign(parameter_bytes: Sequence[int], cap: BucketCap) -> tuple[tuple[int, ...], ...]:
    """For each bucket the indices of its gradients, which are given in the order in which they are ready."""
    limits = bucket_limits(cap)
    buckets, current, size = list[tuple[int, ...]](), list[int](), 0
    for index, its_bytes in enumerate(parameter_bytes):
        current.append(index)
        size += its_bytes
        if size >= limits[min(len(buckets), len(limits) - 1)]:
            buckets.append(tuple(current))
            current, size = [], 0
    return (*buckets, tuple(current)) if current else tuple(buckets)


AT_ONCE = {"gloo": 2, "nccl": 1}
NOTHING_S = 1e-12


@dataclass(frozen=True)
class Compute:
    """A step without transfers, in s."""

    before_s: float  # from the step's begin to that of the last backward pass
    ready_s: tuple[float, ...]  # of each gradient, since that pass began, ascending
    tail_s: float  # from the last of them until all are back from the buckets
    after_s: float  # from there to the next step

    @property
    def step_s(self) -> float:
        """The whole step."""
        return self.before_s + self.ready_s[-1] + self.tail_s + self.after_s


@dataclass(frozen=True)
class Wire:
    """How the messages of a place travel."""

    latency_s: float  # of each message
    s_per_byte: float  # of all messages together
    at_once: int = 1
    slowdown: float = 0.0  # of computing while something travels: a share of its speed, below 1


@dataclass(frozen=True)
class Message:
    """A bucket on its way."""

    bytes: float
    begin_s: float  # since the backward pass began: given to the backend
    end_s: float


@dataclass(frozen=True)
class Schedule:
    """A step with transfers, in s."""

    step_s: float
    exposed_s: float  # more than the step without transfers
    backward_s: float  # the last backward pass, slowed by what travels meanwhile, transfers not waited for
    messages: tuple[Message, ...]


def simulate(
    compute: Compute, buckets: Sequence[Sequence[int]], bucket_bytes: Sequence[float], wire: Wire
) -> Schedule:
    """The step whose ``buckets`` (indices of ``compute.ready_s``) carry ``bucket_bytes``.

    A fluid simulation: between two events every message and the computing go on at a constant speed.
    """
    due_s = [max(compute.ready_s[index] for index in bucket) for bucket in buckets]  # of work, not of time
    begins, ends = [math.inf] * len(buckets), [math.inf] * len(buckets)
    latency_left, bytes_left = dict[int, float](), dict[int, float]()  # of the messages under way
    now_s = done_s = 0.0  # time, and work of the backward pass
    all_work_s = max(compute.ready_s[-1], due_s[-1])
    given = 0
    backward_end_s: float | None = None
    while given < len(buckets) or latency_left or backward_end_s is None:
        while (
            given < len(buckets) and due_s[given] <= done_s + NOTHING_S and len(latency_left) < wire.at_once
        ):
            begins[given] = now_s
            latency_left[given], bytes_left[given] = wire.latency_s, bucket_bytes[given]
            given += 1
        speed = 1 - wire.slowdown if latency_left else 1.0
        sending = [each for each in latency_left if latency_left[each] <= NOTHING_S]
        rate = 1 / (wire.s_per_byte * len(sending)) if sending and wire.s_per_byte else math.inf
        # the next event: a gradient of the bucket in turn, the pass's end, a latency's or a message's end
        targets = [due_s[given]] if given < len(buckets) else []
        targets += [all_work_s] if backward_end_s is None else []
        until = [(target - done_s) / speed for target in targets if target > done_s + NOTHING_S]
        until += [left for left in latency_left.values() if left > NOTHING_S]
        until += [bytes_left[each] / rate if rate < math.inf else 0.0 for each in sending]
        passed_s = max(min(until, default=0.0), 0.0)
        now_s += passed_s
        done_s = min(done_s + passed_s * speed, all_work_s)
        for each in list(latency_left):
            if each in sending:
                bytes_left[each] -= passed_s * rate if rate < math.inf else bytes_left[each]
                if bytes_left[each] * wire.s_per_byte <= NOTHING_S:
                    ends[each] = now_s
                    del latency_left[each]
            else:
                latency_left[each] -= passed_s
        if backward_end_s is None and done_s >= all_work_s - NOTHING_S:
            backward_end_s = now_s
    assert backward_end_s is not None
    # gradients come back from their buckets in order, each when it has arrived
    end_s, total = backward_end_s, sum(bucket_bytes)
    for sent_s, amount in zip(ends, bucket_bytes, strict=True):
        end_s = max(end_s, sent_s) + (compute.tail_s * amount / total if total else 0.0)
    step_s = compute.before_s + end_s + compute.after_s
    messages = tuple(map(Message, bucket_bytes, begins, ends))
    return Schedule(step_s, step_s - compute.step_s, backward_end_s, messages)


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

    ``drift`` is that of another trial: the same steps were timed again after the rounds, and how far they had
    moved by then, beyond the noise of the rounds, is how far they may move until the next trial.
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
    in_rounds, half = series(measurement, "local", mean_rank_s), whole_s.log_half_width
    # marks cost time, so of the timeline's own steps only shorter ones say anything
    moved = max(math.log(level(in_rounds).value / timed.step_s), 0.0) if in_rounds is not None else 0.0
    compute = scaled(timed, whole_s.value / timed.step_s)
    return KnownCompute(compute, half, math.hypot(math.sqrt(2) * half, moved))


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
