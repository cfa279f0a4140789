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

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.stats.rounds import level, series, slowest_step_s
from raybench.records.record import TrialRecord
from raybench.spec.knobs import bucket_sizes_mb
from raybench.spec.network import Line, fastest

MEBIBYTE = 2**20
FIRST_BUCKET_BYTES, DEFAULT_CAP_MB = MEBIBYTE, 25.0

BucketCap = float | str  # in MiB, several as "1/5/25", or "default"


def bucket_limits(cap: BucketCap) -> tuple[int, ...]:
    """The caps in bytes of the first bucket, the second, ...; the last one is that of all further ones."""
    if cap == "default":
        return FIRST_BUCKET_BYTES, int(DEFAULT_CAP_MB * MEBIBYTE)
    return tuple(int(each * MEBIBYTE) for each in bucket_sizes_mb(cap))


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
COMPRESSED_BYTES = 2  # of an element, fp16 or bf16
NOTHING_S = 1e-12


def compressed_share(compression: str, element_bytes: float) -> float:
    """Bytes that travel over those of the gradients, an element of which has so many."""
    return 1.0 if compression == "none" else COMPRESSED_BYTES / element_bytes


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

    def scaled(self, factor: float) -> Compute:
        """Every part by one factor."""
        ready_s = tuple(each * factor for each in self.ready_s)
        return Compute(self.before_s * factor, ready_s, self.tail_s * factor, self.after_s * factor)


@dataclass(frozen=True)
class Wire:
    """How the messages of a place travel."""

    latency_s: float  # of each message
    s_per_byte: float  # of all messages together
    at_once: int = 1
    slowdown: float = 0.0  # of computing while something travels: a share of its speed, below 1
    others: tuple[Line, ...] = ()  # of other algorithms; the fastest is taken for each message

    def scaled(self, factor: float) -> Wire:
        """Latency and time for a byte by one factor."""
        return replace(self, latency_s=self.latency_s * factor, s_per_byte=self.s_per_byte * factor)


def simulate(
    compute: Compute, buckets: Sequence[Sequence[int]], bucket_bytes: Sequence[float], wire: Wire
) -> float:
    """The step in s whose ``buckets`` (indices of ``compute.ready_s``) carry ``bucket_bytes``.

    A fluid simulation: between two events every message and the computing go on at a constant speed.
    """
    due_s = [max(compute.ready_s[index] for index in bucket) for bucket in buckets]  # of work, not of time
    lines = [fastest(((wire.latency_s, wire.s_per_byte), *wire.others), amount) for amount in bucket_bytes]
    ends_s = [math.inf] * len(buckets)
    # of the messages under way: what is left of the latency, and of the transfer were it alone, in s
    latency_left, transfer_left = dict[int, float](), dict[int, float]()
    now_s = done_s = 0.0  # time, and work of the backward pass
    all_work_s = max(compute.ready_s[-1], due_s[-1])
    given = 0
    backward_end_s: float | None = None
    while given < len(buckets) or latency_left or backward_end_s is None:
        while (
            given < len(buckets) and due_s[given] <= done_s + NOTHING_S and len(latency_left) < wire.at_once
        ):
            latency_s, s_per_byte = lines[given]
            latency_left[given], transfer_left[given] = latency_s, bucket_bytes[given] * s_per_byte
            given += 1
        speed = 1 - wire.slowdown if latency_left else 1.0
        sending = [each for each in latency_left if latency_left[each] <= NOTHING_S]
        # the next event: a gradient of the bucket in turn, the pass's end, a latency's or a message's end
        targets = [*due_s[given : given + 1], *([all_work_s] if backward_end_s is None else [])]
        until = [(target - done_s) / speed for target in targets if target > done_s + NOTHING_S]
        until += [left for left in latency_left.values() if left > NOTHING_S]
        until += [transfer_left[each] * len(sending) for each in sending]
        passed_s = max(min(until, default=0.0), 0.0)
        now_s += passed_s
        done_s = min(done_s + passed_s * speed, all_work_s)
        for each in list(latency_left):
            if each not in sending:
                latency_left[each] -= passed_s
                continue
            transfer_left[each] -= passed_s / len(sending)
            if transfer_left[each] <= NOTHING_S:
                ends_s[each] = now_s
                del latency_left[each]
        if backward_end_s is None and done_s >= all_work_s - NOTHING_S:
            backward_end_s = now_s
    assert backward_end_s is not None
    # gradients come back from their buckets in order, each when it has arrived
    end_s, total = backward_end_s, sum(bucket_bytes)
    for sent_s, amount in zip(ends_s, bucket_bytes, strict=True):
        end_s = max(end_s, sent_s) + (compute.tail_s * amount / total if total else 0.0)
    return compute.before_s + end_s + compute.after_s


MOST_SLOWDOWN = 0.9
STEPS = 2**40  # between the bounds of what is looked for


@dataclass(frozen=True)
class StepModel:
    """A step, as one trial has shown it."""

    compute: Compute
    parameter_bytes: tuple[int, ...]  # in the order in which their gradients are ready
    bytes_share: float  # of a gradient's bytes, that travel
    wire: Wire
    left_s: float = 0.0  # of the measured step, that the simulation misses
    most_slowdown: float = MOST_SLOWDOWN  # that transfers may be of computing

    def simulated_s(self, cap: BucketCap) -> float:
        """The step with buckets of ``cap`` MiB, as simulated."""
        buckets = assign(self.parameter_bytes, cap)
        sizes = [self.bytes_share * sum(self.parameter_bytes[index] for index in each) for each in buckets]
        return simulate(self.compute, buckets, sizes, self.wire)

    def step_s(self, cap: BucketCap) -> float:
        """The same with what the simulation misses; never less than the step without transfers."""
        return max(self.simulated_s(cap) + self.left_s, self.compute.step_s)


ROUND, DECADES = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), range(-4, 5)  # sizes that are tried, in MiB
LEAST_SHARE, MOST_SHARE = 1 / 64, 1.7  # of the gradients; the largest holds all of them


def best_caps(model: StepModel) -> tuple[BucketCap, BucketCap]:
    """The fastest bucket size, and the fastest of a first bucket and all others, as simulated.

    Equal where no two sizes are faster than one.
    """
    sizes = list_sizes_mb(model.parameter_bytes)
    singles: list[BucketCap] = ["default", *sizes]
    single = min(singles, key=model.simulated_s)
    pairs = [f"{first:g}/{rest:g}" for first, rest in itertools.permutations(sizes, 2)]
    listed = min(pairs, key=model.simulated_s, default=single)
    is_faster = model.simulated_s(listed) < model.simulated_s(single) - NOTHING_S
    return single, listed if is_faster else single


def list_sizes_mb(parameter_bytes: Sequence[int]) -> list[float]:
    """The sizes of which a list is made, in MiB."""
    total = sum(parameter_bytes) / MEBIBYTE
    sizes = [float(f"{each * 10.0**decade:g}") for decade in DECADES for each in ROUND]
    return [size for size in sizes if LEAST_SHARE * total <= size <= MOST_SHARE * total]


Way = Callable[[StepModel, BucketCap, float], StepModel]


def as_constant(model: StepModel, cap: BucketCap, measured_s: float) -> StepModel:
    """All that the simulation misses of ``measured_s`` is the same whatever the buckets."""
    return replace(model, left_s=measured_s - model.simulated_s(cap))


def as_slower_computing(model: StepModel, cap: BucketCap, measured_s: float) -> StepModel:
    """Computing is slowed while something travels, as far as that explains it; the rest is a constant.

    By no more than the cores' worth of time that transfers take where they run alone, if that is known.
    """

    def slowed(slowdown: float) -> StepModel:
        return replace(model, wire=replace(model.wire, slowdown=slowdown))

    return _as_far(slowed, 0.0, model.most_slowdown, cap, measured_s)


def as_slower_transfers(model: StepModel, cap: BucketCap, measured_s: float) -> StepModel:
    """Transfers are slower, or faster, than alone, as far as that explains it; the rest is a constant."""
    return _as_far(lambda factor: replace(model, wire=model.wire.scaled(factor)), 0.25, 4.0, cap, measured_s)


WAYS: tuple[Way, ...] = (as_slower_computing, as_constant, as_slower_transfers)


def _as_far(
    changed: Callable[[float], StepModel], low: float, high: float, cap: BucketCap, measured_s: float
) -> StepModel:
    """``changed`` by as much, within the bounds, that the step, which grows with it, is the measured one."""
    amount = crossing(lambda tried: changed(tried).simulated_s(cap) - measured_s, low, high)
    return as_constant(changed(amount), cap, measured_s)


def crossing(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is 0; the bound that is nearest to it where it is not between them."""

    def between(step: int) -> float:
        share = step / STEPS
        return low * (1 - share) + high * share

    return between(bisect_left(range(STEPS), 0.0, key=lambda step: rising(between(step))))


def factors(half: float) -> tuple[float, float]:
    """The factors at the ends of an interval whose logarithm has this half-width."""
    return math.exp(half), math.exp(-half)


@dataclass(frozen=True)
class KnownCompute:
    """A step without transfers, and half the interval of the logarithm of its length."""

    compute: Compute
    half: float


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
    tail_s = max(timeline.backward_s - timeline.ready_s[-1], 0.0)
    timed = Compute(timeline.before_s, timeline.ready_s, tail_s, timeline.after_s)
    whole_s = level(values)
    return KnownCompute(timed.scaled(whole_s.value / timed.step_s), whole_s.log_half_width)
