"""What a trial of steps, or a probe, brings: raw measurements; statistics are computed on reading."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from raybench.records.base import (
    Amount,
    Bytes,
    Count,
    Difference,
    Duration,
    Frozen,
    Ratio,
    Seconds,
    Whole,
)
from raybench.records.requests import Variant

StopReason = Literal["half_width", "max_seconds", "steps"]
Phase = Literal["data", "forward", "backward", "optimizer", "other"]
# what is measured when the rounds are done, and may fail without them
Beside = Literal[
    "phases",
    "gradient_timeline",
    "matrix_peak",
    "parity",
    "compression_error",
    "restarts",
    "memory_snapshot",
    "profile",
]


class Block(Frozen):
    """Steps of one variant in one round, after those thrown away."""

    variant: Variant
    ranks: tuple[Whole, ...] = Field(min_length=1)  # who worked, of the worker group
    step_time_s: tuple[Seconds, ...]  # mean over steps, one for each of ``ranks``
    slowest_s: Seconds  # mean over steps of the slowest rank, ranks aligned step by step
    num_steps: Count

    @model_validator(mode="after")
    def _a_time_for_each_rank(self) -> Self:
        if len(self.step_time_s) != len(self.ranks):
            raise ValueError(f"a time for each of {len(self.ranks)} ranks (received {len(self.step_time_s)})")
        return self

    @property
    def mean_s(self) -> float:
        """Mean over steps and ranks, in s."""
        return sum(self.step_time_s) / len(self.step_time_s)


class Round(Frozen):
    """One block of each variant, in the order in which they ran."""

    blocks: tuple[Block, ...] = Field(min_length=1)
    at_s: Duration  # since the first round began
    # of each rank's host: cores' worth of time that processes other than this trial's took
    other_cores: tuple[Difference | None, ...] = ()
    clock_mhz: tuple[Duration | None, ...] = ()  # of each rank's device, while what is measured ran
    throttled: tuple[bool | None, ...] = ()  # the same, or while ``plain`` ran

    def block(self, variant: Variant) -> Block | None:
        """The block of ``variant``, if the round has one."""
        return next((block for block in self.blocks if block.variant == variant), None)


class PhaseBlock(Frozen):
    """Phases of a step, timed apart from the rounds; mean over the block's steps and the ranks."""

    variant: Literal["plain", "local", "synced"]
    seconds: dict[Phase, Difference]  # the rest, a difference, may be below 0
    num_steps: Count


class GradientTimeline(Frozen):
    """A step of ``local``, and when in its last backward pass each gradient is ready to be sent.

    Timed apart from the rounds, as marks cost time. Medians over steps, means over ranks, in s, in whole
    microseconds: of a model with thousands of parameters the record stays small.
    """

    # of each parameter's gradient, in the order in which they are ready: DDP fills its buckets in this one
    parameter_bytes: tuple[Bytes, ...]
    element_bytes: Count | None = None  # of the type that all of them have; None: an older record
    # since that backward pass began; the gradient is then copied into its bucket
    ready_s: tuple[Difference, ...]
    before_s: Difference  # from the step's begin to that of its last backward pass
    backward_s: Difference  # that pass, until the gradients are back from the buckets
    after_s: Difference  # from there to the next step
    # of the first micro-batch of all that accumulate, what repeats: data, forward and backward; None: no more
    micro_batch_s: Difference | None = None
    num_steps: Count
    # cores' worth of time that the all-reduces alone take of each rank, while they run; None: not on CPUs
    communication_cores: Difference | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if len(self.parameter_bytes) != len(self.ready_s) or not self.ready_s:
            raise ValueError("a time for each parameter")
        return self


class Restart(Frozen):
    """The beginning of an epoch, when the loader starts again as training's does: waits for batches, in s.

    Of the slowest rank, ranks aligned batch by batch.
    """

    first_batch_s: Duration  # from the end of the epoch before to the first batch
    num_batches: Count  # from the first one on, until the loader's processes are in step again
    waited_s: Duration  # for these batches, the first one among them
    usual_s: Duration  # wait for a batch after them, on average

    @property
    def cost_s(self) -> float:
        """What it adds to the epoch's steps, in s."""
        return self.waited_s - self.num_batches * self.usual_s


class LossParity(Frozen):
    """Losses and gradients from the same weights on the same samples, beside those of one device.

    The one device takes the samples of all ranks in the same pieces and averages their gradients, so that
    batch statistics are the same; dropout draws the same masks in each piece.
    """

    samples_per_step: Count  # of all ranks
    # step by step, mean over ranks and micro-batches, before the step's update; None: not finite
    losses: tuple[float | None, ...]
    reference_losses: tuple[float | None, ...]
    # |g - g1| / |g1| of the first step's averaged gradient and one device's, Euclidean norms: at a small
    # learning rate losses say nothing of gradients. None: not finite, or a step that fp16 skipped
    gradient_difference: float | None = None
    may_differ: tuple[str, ...] = ()  # what in the model makes a difference legitimate


class TracedRank(Frozen):
    """What one rank's trace of a few steps says, in s: each moment counts once, however much runs in it."""

    rank: Whole  # of the worker group
    num_steps: Count
    steps_s: Seconds  # from the first step's begin to the last one's end
    compute_s: Duration
    communication_s: Duration  # waiting for other ranks within a transfer is part of it
    both_s: Duration  # communication while this rank computes

    @property
    def alone_s(self) -> float:
        """Communication while this rank does not compute, in s."""
        return self.communication_s - self.both_s


class StepsResult(Frozen):
    """What a complete trial of steps has."""

    kind: Literal["steps"] = "steps"
    rounds: tuple[Round, ...]
    stopped_by: StopReason
    batch_size: Count  # micro-batch of one device
    global_batch_size: Count
    samples_per_step: Amount  # of all ranks
    tokens_per_step: Amount | None = None
    epoch_samples: Count | None = None  # of the training set; None: synthetic input
    versus_samples_per_step: Amount | None = None
    warmup_steps: Whole
    setup_s: Duration
    warmup_s: Duration
    measure_s: Duration
    num_parameters: Count | None = None  # numbers that are trained; None: an older record
    gradient_bytes: Count | None = None  # of one rank, what travels in a step
    bucket_bytes: tuple[Count, ...] = ()
    missing: dict[Variant | Beside, str] = Field(default_factory=dict)  # what could not be had, and why
    phases: tuple[PhaseBlock, ...] = ()
    gradient_timeline: GradientTimeline | None = None  # of DDP without transfers, in trials of the curve
    restarts: tuple[Restart, ...] = ()  # of the loader of real input, in trials of the curve
    profile: tuple[TracedRank, ...] = ()  # of each rank that has a trace, where a profile was asked for
    ddp_logger: dict[str, float] | None = None  # times of DDP's own logger, in s
    flops_per_step: float | None = None  # of one device
    matrix_peak_flops_per_s: float | None = None  # measured, of one device alone
    peak_memory_bytes: tuple[Bytes, ...] | None = None  # each rank, as torch counts it
    # each rank: on a GPU what torch reserved and what others use of it, on a CPU the process's resident set
    device_memory_bytes: tuple[Bytes, ...] | None = None
    memory_limit_bytes: tuple[Count, ...] | None = (
        None  # each rank: its GPU's memory, its share of the host's
    )
    device_utilization: tuple[Duration | None, ...] | None = None  # 0 to 1, while what is measured ran
    energy_joules: Difference | None = None  # of all devices, per step of synced (on one device of plain)
    plain_energy_joules: Difference | None = None  # of one device alone, per step of plain
    hosts: tuple[Whole, ...] = ()  # of each rank, the leader's is 0
    host_cores: tuple[Count, ...] = ()  # of each rank's host, that the rank may use
    # cores that each took, on the leader's host; of trials of the curve
    other_programs: dict[str, Difference] = Field(default_factory=dict)
    loss: float | None = None  # after the last round
    parity: LossParity | None = None  # scaling trials: does the strategy train what one device trains?
    # |compressed - exact| / |exact|, Euclidean norms of the averaged gradient of one step
    compression_error: Ratio | None = None


class ProbeResult(Frozen):
    """What a complete probe has: the memory that each rank took, in bytes; None where it is not told."""

    kind: Literal["probe"] = "probe"
    setup_s: Duration
    warmup_s: Duration
    peak_memory_bytes: tuple[Bytes, ...] | None = None  # as torch counts it
    # on a GPU what torch reserved and what others use of it, on a CPU the process's resident set
    device_memory_bytes: tuple[Bytes, ...] | None = None
    memory_limit_bytes: tuple[Count, ...] | None = None  # the GPU's memory, the rank's share of the host's
    # what does not grow with the batch (weights, gradients, buckets, optimizer); on CPUs
    fixed_memory_bytes: tuple[Bytes, ...] | None = None
