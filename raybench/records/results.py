"""What complete trials bring, by kind of request: raw measurements; statistics are computed on reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from raybench.records.base import (
    Amount,
    Bytes,
    Count,
    Difference,
    Duration,
    Finite,
    Frozen,
    Ratio,
    Samples,
    Seconds,
    Whole,
)
from raybench.records.requests import LearningCurve, Variant
from raybench.spec.study import Pruner
from raybench.spec.sweep import Collective

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


class HalfBatch(Frozen):
    """The same step with half of each micro-batch: what of computing does not grow with the batch."""

    batch_size: Count  # samples of a micro-batch
    before_s: Difference
    ready_s: Difference  # of the last gradient, since the last backward pass began


class ContentionTurn(Frozen):
    """Computing and transfers alone, then both at once; means over the turn's steps and the ranks, in s."""

    step_s: Seconds  # of ``local``
    replay_s: Seconds  # all buckets, nothing computed beside them
    step_beside_s: Seconds  # of ``local``, while buckets travel
    replay_beside_s: Seconds  # all buckets, while steps are computed


class Contention(Frozen):
    """What transfers and computing take from each other, on CPUs: they share cores."""

    turns: tuple[ContentionTurn, ...] = Field(min_length=1)
    steps_per_turn: Count
    replays_per_turn: Count


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
    half_batch: HalfBatch | None = None  # None: ``no_half_batch`` says why
    no_half_batch: str = ""
    # cores' worth of time that the all-reduces alone take of each rank, while they run; None: not on CPUs
    communication_cores: Difference | None = None
    contention: Contention | None = None  # None: not on CPUs, or too short beside each other

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


class GradientNorms(Frozen):
    """Squared norms of the gradients of one big batch and of the small ones that it consists of."""

    small_batch: Count  # samples
    small_square: Ratio  # mean over the small batches
    big_batch: Count  # samples, of all small ones together
    big_square: Ratio

    @model_validator(mode="after")
    def _one_is_bigger(self) -> Self:
        if self.big_batch <= self.small_batch:
            raise ValueError(f"big_batch: above small_batch, {self.small_batch} (received {self.big_batch})")
        return self


class Epoch(Frozen):
    """One pass over the training samples, all ranks together."""

    epoch: Count  # from 1
    steps: Count  # of the optimizer
    skipped_steps: Whole = 0  # of these, left out by the scaler of fp16: a gradient was not finite
    samples: tuple[Samples, ...]  # that each rank trained on
    learning_rate: Finite  # of the first parameter group, in the epoch's last step
    train_loss: Finite  # mean over samples, each as the model was when it trained on it
    train_correct: Samples | None = None  # None: the workload has no metric
    train_s: Seconds  # on the slowest rank
    test_loss: Finite | None = None  # None: not evaluated after this epoch
    test_correct: Samples | None = None
    test_samples: Samples | None = None
    evaluation_s: Duration | None = None
    noise: tuple[GradientNorms, ...] = ()
    noise_s: Duration = 0.0
    checkpoint_s: Duration = 0.0

    @model_validator(mode="after")
    def _has_samples(self) -> Self:
        if not sum(self.samples):
            raise ValueError("samples: above 0 in all")
        if (self.train_correct or 0) > sum(self.samples):
            raise ValueError(f"train_correct: at most {sum(self.samples)} (received {self.train_correct})")
        if (self.test_correct or 0) > (self.test_samples or 0):
            raise ValueError(f"test_correct: at most {self.test_samples} (received {self.test_correct})")
        return self

    @property
    def train_accuracy(self) -> float | None:
        """Share of the training samples, 0 to 1."""
        return None if self.train_correct is None else self.train_correct / sum(self.samples)

    @property
    def test_accuracy(self) -> float | None:
        """Share of the test samples, 0 to 1."""
        if self.test_correct is None or not self.test_samples:
            return None
        return self.test_correct / self.test_samples

    @property
    def elapsed_s(self) -> float:
        """Training and evaluation, as a user waits for them; what raybench measures beside is left out."""
        return self.train_s + (self.evaluation_s or 0.0)

    def words(self, num_epochs: int) -> str:
        """One line: "epoch 2/3, test accuracy 81.2%"."""
        words = f"epoch {self.epoch}/{num_epochs}"
        if self.test_accuracy is not None:
            return f"{words}, test accuracy {self.test_accuracy:.1%}"
        if self.test_loss is not None:
            return f"{words}, test loss {self.test_loss:.4g}"
        return f"{words}, training loss {self.train_loss:.4g}"


def learning_curve(epochs: Sequence[Epoch]) -> LearningCurve:
    """The scores of the evaluated ones of ``epochs``."""
    scores = ((each.epoch, each.test_accuracy, each.test_loss) for each in epochs)
    return tuple(
        (epoch, accuracy if accuracy is not None else -loss)
        for epoch, accuracy, loss in scores
        if loss is not None
    )


class Pruned(Frozen):
    """Why a training was stopped early."""

    epoch: Count  # after which
    pruner: Pruner
    compared: Count  # trainings that had come so far, this one included


class TrainingResult(Frozen):
    """What a complete training trial has."""

    kind: Literal["training"] = "training"
    epochs: tuple[Epoch, ...] = Field(min_length=1)
    global_batch_size: Count
    reference_batch: Count
    peak_learning_rate: Finite  # after scaling and warm-up
    setup_s: Duration
    resumed_after: Whole = 0  # epochs that came from a checkpoint
    stopped_by: Pruned | None = None  # None: all epochs were trained
    peak_memory_bytes: tuple[Bytes, ...] | None = None  # each rank, as torch counts it
    device_memory_bytes: tuple[Bytes, ...] | None = None  # as the device (CPU: the process) counts it
    device_utilization: tuple[Duration | None, ...] = ()  # each rank, while training; CPUs: of its cores
    weights_difference: Ratio | None = None  # largest between two ranks, at the end
    model: str | None = None  # where the trained model is, below the results directory
    missing: dict[str, str] = Field(default_factory=dict)  # what could not be had, and why

    @model_validator(mode="after")
    def _one_of_each_rank(self) -> Self:
        ranks = len(self.epochs[0].samples)
        of_ranks = {
            "peak_memory_bytes": self.peak_memory_bytes,
            "device_memory_bytes": self.device_memory_bytes,
            "device_utilization": self.device_utilization,
            **{f"epochs.{place}.samples": each.samples for place, each in enumerate(self.epochs)},
        }
        for name, values in of_ranks.items():
            if values and len(values) != ranks:
                raise ValueError(f"{name}: one of each of {ranks} ranks (received {len(values)})")
        return self


# oom: no memory for its buffers. time: its rounds would not fit into the time. unsupported: the backend has
# no such collective. wrong: its result is. uneven: the ranks cannot have equal shares of it.
WhyNot = Literal["oom", "time", "unsupported", "wrong", "uneven"]
OfRanks = Annotated[tuple[Ratio, ...], Field(min_length=1)]


class MessageBlock(Frozen):
    """Operations of one collective on one message, one after the other, after those thrown away."""

    collective: Collective
    message_bytes: Count  # as nccl-tests counts it: of all_gather's output, of reduce_scatter's input
    # of one operation: the mean over the block, one for each rank of the team
    time_s: tuple[Seconds, ...] = Field(min_length=1)
    num_operations: Count
    # as ``time_s``, on CPUs; None on GPUs, and where it is not told
    busy_cores: OfRanks | None = None  # that each rank's process used, all its threads, mean
    host_busy: OfRanks | None = None  # share of the host's cores at work for whomever

    @property
    def slowest_s(self) -> float:
        """Of the slowest rank: the time of the operation."""
        return max(self.time_s)


class MessageRound(Frozen):
    """One block of each collective and message, in the order in which they ran."""

    blocks: tuple[MessageBlock, ...] = Field(min_length=1)
    at_s: Duration  # since the first round began


class NotMeasured(Frozen):
    """A message that was left out, and why; without ``message_bytes`` the collective at every size."""

    collective: Collective
    message_bytes: Count | None = None
    why: WhyNot
    reason: str


class CollectivesResult(Frozen):
    """What a complete part of a sweep has."""

    kind: Literal["collectives"] = "collectives"
    backend: str  # that carried the messages
    rounds: tuple[MessageRound, ...] = Field(min_length=1)
    stopped_by: StopReason  # "steps": the part has the rounds that it was asked for
    missing: tuple[NotMeasured, ...] = ()
    hosts: tuple[Whole, ...] = ()  # of each rank, the leader's is 0
    # that each rank's process may use; None on GPUs
    host_cores: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    setup_s: Duration
    warmup_s: Duration
    measure_s: Duration
