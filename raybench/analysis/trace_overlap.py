"""What a trace of torch.profiler says of communication and compute: how long each ran, and both at once.

A trace is one rank's: events with a beginning and a duration in microseconds, in Chrome's trace format.
Transfers run beside the computing: gloo's on threads of their own (``gloo:all_reduce``), NCCL's as kernels on
streams of their own (``ncclDevKernel_AllReduce_...``). Compute is what kernels do on a GPU, and operators on
CPUs. Many events are within others or run side by side, so moments are counted, each once: the length of the
union of all intervals, and of the intersection of two unions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raybench.records.measurements import TracedRank

Interval = tuple[float, float]  # begin and end

MICROSECOND = 1e-6
KERNEL, OPERATOR, ANNOTATION = "kernel", "cpu_op", "user_annotation"  # categories of events
STEP = re.compile(r"ProfilerStep#\d+")  # as torch.profiler names each step that it records
HANDS_OVER = "c10d::"  # operators that hand a transfer to its backend: no compute


def traced_rank(events: Iterable[Mapping[str, Any]], rank: int) -> TracedRank:
    """Seconds of communication, compute and both at once within the steps of one rank's trace.

    ``events`` are a trace's ``traceEvents``; ``rank`` is that of the worker group. A transfer that waits for
    another rank is running. Raises ``ValueError`` for a trace without a whole step.
    """
    whole = [event for event in events if event.get("ph") == "X"]
    steps = [each for each in whole if each.get("cat") == ANNOTATION and STEP.fullmatch(each["name"])]
    if not steps:
        raise ValueError("the trace has no step")
    spans = [_interval(step) for step in steps]
    window = [(min(begin for begin, _ in spans), max(end for _, end in spans))]
    on_gpu = any(event.get("cat") == KERNEL for event in whole)
    computes = _computes_on_gpu if on_gpu else _computes_on_cpu
    transfers = _transfers_on_gpu if on_gpu else _transfers_on_cpu
    compute = intersection(union(_interval(each) for each in whole if computes(each)), window)
    communication = intersection(union(_interval(each) for each in whole if transfers(each)), window)
    return TracedRank(
        rank=rank,
        num_steps=len(steps),
        steps_s=_seconds(window),
        compute_s=_seconds(compute),
        communication_s=_seconds(communication),
        both_s=_seconds(intersection(communication, compute)),
    )


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The moments that lie in any of ``intervals``: ascending, without touching each other."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def intersection(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """The moments that lie in both of two unions."""
    common: list[Interval] = []
    first = second = 0
    while first < len(one) and second < len(other):
        begin = max(one[first][0], other[second][0])
        end = min(one[first][1], other[second][1])
        if begin < end:
            common.append((begin, end))
        if one[first][1] < other[second][1]:
            first += 1
        else:
            second += 1
    return common


def _computes_on_gpu(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == KERNEL and not _transfers_on_gpu(event)


def _transfers_on_gpu(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == KERNEL and event["name"].startswith("nccl")


def _computes_on_cpu(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == OPERATOR and not event["name"].startswith(HANDS_OVER)


def _transfers_on_cpu(event: Mapping[str, Any]) -> bool:
    return bool(event["name"].startswith("gloo:"))


def _interval(event: Mapping[str, Any]) -> Interval:
    begin = float(event["ts"])
    return begin, begin + float(event["dur"])


def _seconds(intervals: Iterable[Interval]) -> float:
    return MICROSECOND * sum(end - begin for begin, end in intervals)
