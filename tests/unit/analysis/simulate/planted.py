"""Trials whose gradients and link are known, with the step that follows in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raybench.analysis.simulate.network import replay_s
from raybench.analysis.simulate.timeline import BucketCap, Compute, StepModel, Wire, assign
from raybench.records.record import TrialRecord
from raybench.records.results import GradientTimeline
from raybench.spec.knobs import Setting
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import measured

KIB = 2**10
BYTES = tuple(kib * KIB for kib in (600, 4, 900, 4, 1500, 4, 3000, 4, 500))
READY_S = tuple(0.004 * place for place in range(1, 10))
BEFORE_S, TAIL_S, AFTER_S = 0.010, 0.0, 0.002
S_PER_BYTE = 0.006 / 2**20


def exposed_s(cap: BucketCap, s_per_byte: float = S_PER_BYTE, ready_s: Sequence[float] = READY_S) -> float:
    """Without latency a link is never idle while there is something to send, however many share it."""
    due = [(ready_s[each[-1]], sum(BYTES[index] for index in each)) for each in assign(BYTES, cap)]
    ends = [at_s + s_per_byte * sum(size for _, size in due[place:]) for place, (at_s, _) in enumerate(due)]
    return max(max(ends) - ready_s[-1], 0.0)


def trial(
    cap: BucketCap = "default",
    *,
    extra_s: float = 0.0,
    s_per_byte: float = S_PER_BYTE,
    factor: float = 1.0,
    timeline_factor: float = 1.0,
    **knobs: Any,
) -> TrialRecord:
    """A trial of the curve on two devices, nothing but bandwidth in its transfers.

    ``factor`` lengthens all passes, ``timeline_factor`` only the timeline's own steps (marks cost time), and
    ``extra_s`` the synchronised step.
    """
    ready_s = [factor * each for each in READY_S]
    local_s = factor * BEFORE_S + ready_s[-1] + TAIL_S + AFTER_S
    costs = StepCosts(
        plain_s=local_s,
        exposed_s=exposed_s(cap, s_per_byte, ready_s) + extra_s,
        replay_s=s_per_byte * sum(BYTES),
        gradient_bytes=sum(BYTES),
    )
    setting = Setting(bucket_cap_mb=cap, **knobs)
    record = measured(costs, QUIET, setting=setting)
    sizes = [sum(BYTES[index] for index in each) for each in assign(BYTES, cap)]
    timeline = GradientTimeline(
        parameter_bytes=BYTES,
        element_bytes=4,
        ready_s=tuple(timeline_factor * each for each in ready_s),
        before_s=timeline_factor * factor * BEFORE_S,
        backward_s=timeline_factor * (ready_s[-1] + TAIL_S),
        after_s=timeline_factor * AFTER_S,
        num_steps=5,
    )
    changed = {"bucket_bytes": tuple(sizes), "gradient_timeline": timeline}
    assert record.steps is not None
    return record.model_copy(update={"result": record.steps.model_copy(update=changed)})


# gradients that get ready in bursts, over a link with latency: several sizes are faster than any single one
BURSTS = StepModel(
    Compute(0.002, (0.001, 0.011, 0.021, 0.025, 0.035, 0.036, 0.046, 0.050), 0.0, 0.001),
    tuple(int(mib * 2**20) for mib in (1, 0.5, 2, 8, 1, 2, 8, 0.25)),
    1.0,
    Wire(latency_s=0.010, s_per_byte=0.002 / 2**20),  # one message at a time, as NCCL
)


def trial_in_bursts(cap: BucketCap = "default", **fields: Any) -> TrialRecord:
    """A trial of ``BURSTS``; ``fields`` of its request."""
    order = BURSTS.parameter_bytes
    sizes = [sum(order[index] for index in each) for each in assign(order, cap)]
    compute, local_s = BURSTS.compute, BURSTS.compute.step_s
    costs = StepCosts(
        plain_s=local_s,
        exposed_s=BURSTS.simulated_s(cap) - local_s,
        replay_s=replay_s(sizes, BURSTS.wire),
        gradient_bytes=sum(sizes),
    )
    record = measured(costs, QUIET, setting=Setting(bucket_cap_mb=cap), device="cuda", **fields)
    assert record.steps is not None
    timeline = GradientTimeline(
        parameter_bytes=order,
        element_bytes=4,
        ready_s=compute.ready_s,
        before_s=compute.before_s,
        backward_s=compute.ready_s[-1],
        after_s=compute.after_s,
        num_steps=5,
    )
    changed = {"bucket_bytes": tuple(sizes), "gradient_timeline": timeline}
    result = record.steps.model_copy(update=changed)
    return record.model_copy(update={"result": result, "ranks": (0, 1)})
