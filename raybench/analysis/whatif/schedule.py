"""DDP's schedule, simulated: what computes, what travels, and what of that nothing hides.

Li et al. (2020), "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 13(12),
section 3.2: buckets are sent in one fixed order, each when all its gradients are ready and the one before
it was given away; the optimizer waits for the last. A message takes latency + bytes / bandwidth. What is
sent at once shares the bandwidth; how many are is the backend's: NCCL has one stream for a group, gloo two
threads (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: two for each interface).

Where transfers need the cores that compute, both get less: while something travels computing goes at ``1 -
slowdown`` of its speed, and while the backward pass computes transfers go at ``1 - held_back`` of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    held_back: float = 0.0  # the same of transfers while something is computed


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
        pace = 1 - wire.held_back if backward_end_s is None else 1.0
        sending = [each for each in latency_left if latency_left[each] <= NOTHING_S]
        rate = pace / (wire.s_per_byte * len(sending)) if sending and wire.s_per_byte else math.inf
        # the next event: a gradient of the bucket in turn, the pass's end, a latency's or a message's end
        targets = [due_s[given]] if given < len(buckets) else []
        targets += [all_work_s] if backward_end_s is None else []
        until = [(target - done_s) / speed for target in targets if target > done_s + NOTHING_S]
        until += [left / pace for left in latency_left.values() if left > NOTHING_S]
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
                latency_left[each] -= passed_s * pace
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
