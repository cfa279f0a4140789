"""What complete trials bring, by kind of request: raw measurements; statistics are computed on reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

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

StopReason = Literal["half_width", "max_seconds", "steps", "ended"]
Phase = Literal["data", "forward", "backward", "optimizer", "other"]
DataParallelPart = Literal["scatter", "replicate", "gather"]
# what is measured when the rounds are done, and may fail without them
Beside = Literal[
    "device_use",
    "host_waits",
    "data_parallel",
    "phases",
    "gradient_timeline",
    "matrix_peak",
    "optimizer",
    "parity",
    "profile",
]


class Block(Frozen):
    """Steps of one variant in one round, after those thrown away."""

    #: what ran
    variant: Variant
    #: ranks of the worker group that worked
    ranks: tuple[Whole, ...] = Field(min_length=1)
    #: mean over steps, one for each of `ranks`, in s
    step_time_s: tuple[Seconds, ...]
    #: mean over steps of the slowest rank, ranks aligned step by step, in s
    slowest_s: Seconds
    #: steps that count
    num_steps: Count
    #: clock of each of these ranks' GPUs late in the block, in MHz; of `plain`, `concurrent` and what is
    #: measured; empty: another variant, CPUs, or an older record
    clock_mhz: tuple[Duration | None, ...] = ()

    @model_validator(mode="after")
    def _a_time_for_each_rank(self) -> Self:
        if len(self.step_time_s) != len(self.ranks):
            raise ValueError(f"a time for each of {len(self.ranks)} ranks (received {len(self.step_time_s)})")
        return self


class Round(Frozen):
    """One block of each variant, in the order in which they ran."""

    #: one block of each variant, in the order in which they ran
    blocks: tuple[Block, ...] = Field(min_length=1)
    #: time since the first round began, in s
    at_s: Duration
    #: cores' worth of time that processes other than the trial's took, on each rank's host
    other_cores: tuple[Difference | None, ...] = ()
    #: clock of each rank's device while what is measured ran, in MHz
    clock_mhz: tuple[Duration | None, ...] = ()
    #: whether each rank's device held its clock down while what is measured or `plain` ran
    throttled: tuple[bool | None, ...] = ()
    #: temperature of each rank's GPU when the round ends, in degrees Celsius
    temperature_c: tuple[Duration | None, ...] = ()

    def block(self, variant: Variant) -> Block | None:
        """The block of ``variant``, if the round has one."""
        return next((block for block in self.blocks if block.variant == variant), None)


class PhaseBlock(Frozen):
    """Phases of a step, timed in blocks of their own; mean over the block's steps and the ranks."""

    #: what ran
    variant: Literal["plain", "local", "ddp"]
    #: mean over steps and ranks, in s; `other` is a difference and may be below 0
    seconds: dict[Phase, Difference]
    #: steps that count
    num_steps: Count


class GradientTimeline(Frozen):
    """A step of ``local``, and when in its last backward pass each gradient is ready to be sent.

    Timed apart from the rounds, as marks cost time. Medians over steps, means over ranks, in s, in whole
    microseconds: of a model with thousands of parameters the record stays small.
    """

    #: size of each parameter's gradient, in the order in which they are ready, in which DDP fills its buckets
    parameter_bytes: tuple[Bytes, ...]
    #: bytes of one element of a gradient
    element_bytes: Count
    #: time of each since the last backward pass of the step began, its copy into the bucket included, in s
    ready_s: tuple[Difference, ...]
    #: from the step's begin to that of its last backward pass, in s
    before_s: Difference
    #: that pass, until the gradients are back from the buckets, in s
    backward_s: Difference
    #: from there to the next step, in s
    after_s: Difference
    #: with accumulation what each micro-batch before the last repeats (data, forward and backward), in s;
    #: else null
    micro_batch_s: Difference | None = None
    #: steps, of `local`; times are medians over them and means over ranks, in whole microseconds
    num_steps: Count
    #: cores' worth of time that the all-reduces alone take of each rank; null on GPUs
    communication_cores: Difference | None = None


class LossParity(Frozen):
    """Losses and gradients from the same weights on the same samples, against those of one device.

    The one device takes the samples of all ranks in the same pieces and averages their gradients, so that
    batch statistics are the same; dropout draws the same masks in each piece.
    """

    #: samples of all ranks
    samples_per_step: Count
    #: losses step by step, mean over ranks and micro-batches, before the step's update; null: not finite
    losses: tuple[float | None, ...]
    #: losses of one device on the same samples
    reference_losses: tuple[float | None, ...]
    #: relative difference of the first step's averaged gradient (Euclidean norms): at a small learning rate
    #: losses say nothing of gradients; null: not finite, or a step that fp16 skipped
    gradient_difference: float | None = None


class PCIeLink(Frozen):
    """The link between a GPU and its host."""

    #: generation in use, of a GPU at work
    generation: Count
    #: lanes in use
    lanes: Count
    #: highest generation of GPU and slot together
    most_generation: Count
    #: most lanes of GPU and slot
    most_lanes: Count

    @property
    def is_narrow(self) -> bool:
        """Whether the GPU could have a faster one."""
        return self.lanes < self.most_lanes or self.generation < self.most_generation


class NUMANode(Frozen):
    """The NUMA node of a rank's GPU, on a host that has several."""

    #: number of the node, as the kernel counts
    node: Whole
    #: its cores that the rank may use
    cores: Whole


class HeldSteps(Frozen):
    """What was added to a step to make it one on more devices, on average, in s."""

    #: by how much its all-reduces together are held longer
    held_s: Duration
    #: the same on the network where it is as slow as it may be
    slow_held_s: Duration
    #: and as fast
    fast_held_s: Duration
    #: wait for the slowest device beyond the slowest of the trial's own
    waited_s: Duration
    #: by how much the network's all-reduces are shorter than those here, which a step cannot show
    shorter_s: Duration = 0.0


class Memory(Frozen):
    """The memory of each rank, in bytes; null where unknown."""

    #: memory of each rank, as torch counts it
    peak_memory_bytes: tuple[Bytes, ...] | None = None
    #: memory of each rank: on a GPU the most that torch reserved for what is measured, and what others use;
    #: on CPUs the process's
    device_memory_bytes: tuple[Bytes, ...] | None = None


class StepsResult(Memory):
    """What a complete trial of steps has."""

    kind: Literal["steps"] = "steps"
    #: the measurements
    rounds: tuple[Round, ...]
    #: why no further round
    stopped_by: StopReason
    #: samples of one device's micro-batch
    batch_size: Count
    #: samples of all devices in an optimizer step
    global_batch_size: Count
    #: samples that the workload counts in a step of all ranks
    samples_per_step: Amount
    #: tokens in a step of all ranks
    tokens_per_step: Amount | None = None
    #: samples of the training set; null: synthetic input
    epoch_samples: Count | None = None
    #: time of setting up, in s
    setup_s: Duration
    #: time of warming up, in s
    warmup_s: Duration
    #: time of all rounds, in s
    measure_s: Duration
    #: numbers in the model that are trained; absent in older records
    num_parameters: Count | None = None
    #: what a training usually has in a step, and the measured steps have not; empty: an older record
    left_out: tuple[str, ...] = ()
    #: what one rank sends in a step, in bytes
    gradient_bytes: Count | None = None
    #: sizes of DDP's buckets, in bytes
    bucket_bytes: tuple[Count, ...] = ()
    #: sizes of FSDP's collectives in a step, in their order: of a gather of weights the output, of a
    #: reduce-scatter of gradients the input, in bytes; empty: another strategy, or an older record
    collective_bytes: tuple[Count, ...] = ()
    #: collectives that the passes of a step call, as SyncBatchNorm and losses that gather do; null: no
    #: `local`, or an older record
    pass_collectives: Whole | None = None
    #: collectives that a script's steps of `local` call all the same: their ranks wait for one another
    local_collectives: Whole = 0
    #: variants that could not be had, and what is measured after the rounds, each with the reason
    missing: dict[Variant | Beside, str] = Field(default_factory=dict)
    #: what was added to each step of `as_if_1`, `as_if_2`, ...
    held: tuple[HeldSteps, ...] = ()
    #: phases of a step, timed in blocks of their own
    phases: tuple[PhaseBlock, ...] = ()
    #: of `dp`: what scattering the batch, copying the weights to every device and gathering the outputs take
    #: of a step, every device waited for around each, in s; null: another strategy, or an older record
    data_parallel_s: dict[DataParallelPart, Duration] | None = None
    #: when each gradient is ready to be sent, in steps of their own; null: no `local` in the trial, or an
    #: older record
    gradient_timeline: GradientTimeline | None = None
    #: of a script: the arguments of DDP that the study's knobs have replaced, as they were
    overridden: dict[str, str] = Field(default_factory=dict)
    #: of a script: whether the first batches of all ranks are of the same samples of the data set
    same_samples: bool = False
    #: floating-point operations of one device in a step
    flops_per_step: float | None = None
    #: measured peak of one device, in FLOP/s
    matrix_peak_flops_per_s: float | None = None
    #: the optimizer's update alone, on all ranks at once, in s; null: fused, cannot be so, or an older record
    update_s: Seconds | None = None
    #: the same with a fused optimizer, in s
    fused_update_s: Seconds | None = None
    #: limit of each rank: its GPU's memory, or its share of the host's
    memory_limit_bytes: tuple[Count, ...] | None = None
    #: how often torch's allocator found each rank's GPU full in the timed steps of what is measured, of older
    #: records in the rounds; empty: a still older one
    allocator_retries: tuple[Whole, ...] = ()
    #: busy share of each rank's GPU over some seconds of what is measured, 0 to 1; in trials of the curve
    device_utilization: tuple[Duration | None, ...] | None = None
    #: energy of all GPUs over the same time, from a second on, for one step of `ddp` (on one GPU of `plain`)
    energy_joules: Difference | None = None
    #: energy of one GPU alone, for one step of `plain`, over seconds of its own
    plain_energy_joules: Difference | None = None
    #: a number for the host of each rank; the leader's is 0
    hosts: tuple[Whole, ...] = ()
    #: cores of each rank's host that the rank may use
    host_cores: tuple[Count, ...] = ()
    #: of each rank's control groups, the share of the kernel's scheduling periods during the rounds in which
    #: their quota of CPU time was used up; null: they have none
    quota_used_up: tuple[Ratio | None, ...] = ()
    #: networks over which NCCL connected each rank so far, by NCCL's own log, such as `IB/GDRDMA` (GPUDirect)
    #: or `Socket`; null: none, or not known
    nccl_networks: tuple[str | None, ...] = ()
    #: lines of code at which a step of the leader's waits for its GPU, each with how often; null: unknown
    host_waits: dict[str, Count] | None = None
    #: link of each rank's GPU late in a block of what is measured; null: not known
    pcie_links: tuple[PCIeLink | None, ...] = ()
    #: NUMA node of each rank's GPU; null: not known, or its host has one
    numa_nodes: tuple[NUMANode | None, ...] = ()
    #: losses and gradient against those of one device, in trials of the curve but for dp: does the strategy
    #: train what one device trains?
    parity: LossParity | None = None

    @model_validator(mode="after")
    def _two_rounds_with_a_step(self) -> Self:
        steps = sum(any(block.variant in ("ddp", "plain") for block in each.blocks) for each in self.rounds)
        if steps < 2:
            raise ValueError(f"at least two rounds with a step (received {steps})")
        return self


class ProbeResult(Memory):
    """What a complete probe has: the memory that each rank took."""

    kind: Literal["probe"] = "probe"
    #: limit of each rank: its GPU's memory, or its share of the host's
    memory_limit_bytes: tuple[Count, ...] | None = None
    #: memory of each rank that does not grow with the batch (weights, gradients, buckets, optimizer); on CPUs
    fixed_memory_bytes: tuple[Bytes, ...] | None = None


class Epoch(Frozen):
    """One pass over the training samples, all ranks together."""

    #: number of the epoch, from 1
    epoch: Count
    #: steps of the optimizer
    steps: Count
    #: of these, left out by the gradient scaler of fp16 as a gradient was not finite
    skipped_steps: Whole = 0
    #: samples that each rank trained on
    samples: tuple[Samples, ...]
    #: learning rate of the first parameter group, in the epoch's last step
    learning_rate: Finite
    #: mean over samples, each as the model was when it trained on it
    train_loss: Finite
    #: correct predictions; null: the workload has no `metric`
    train_correct: Samples | None = None
    #: time of training on the slowest rank, in s
    train_s: Seconds
    #: mean over the test samples
    test_loss: Finite
    #: correct predictions of the test samples; null: the workload has no `metric`
    test_correct: Samples | None = None
    #: number of test samples
    test_samples: Count
    #: time of the evaluation, in s
    evaluation_s: Duration

    @model_validator(mode="after")
    def _has_samples(self) -> Self:
        if not sum(self.samples):
            raise ValueError("samples: above 0 in all")
        if (self.train_correct or 0) > sum(self.samples):
            raise ValueError(f"train_correct: at most {sum(self.samples)} (received {self.train_correct})")
        if (self.test_correct or 0) > self.test_samples:
            raise ValueError(f"test_correct: at most {self.test_samples} (received {self.test_correct})")
        return self

    @property
    def train_accuracy(self) -> float | None:
        """Share of the training samples, 0 to 1."""
        return None if self.train_correct is None else self.train_correct / sum(self.samples)

    @property
    def test_accuracy(self) -> float | None:
        """Share of the test samples, 0 to 1."""
        return None if self.test_correct is None else self.test_correct / self.test_samples

    @property
    def elapsed_s(self) -> float:
        """Training and evaluation, as a user waits for them; what raybench measures beside is left out."""
        return self.train_s + self.evaluation_s

    def words(self, num_epochs: int) -> str:
        """One line: "epoch 2/3, train loss 0.2 (92.5%), test loss 0.23 (93.2%)", with accuracies."""
        words = f"epoch {self.epoch}/{num_epochs}"
        for name, loss, accuracy in (
            ("train", self.train_loss, self.train_accuracy),
            ("test", self.test_loss, self.test_accuracy),
        ):
            words += f", {name} loss {loss:.4g}" + ("" if accuracy is None else f" ({accuracy:.1%})")
        return words


def learning_curve(epochs: Sequence[Epoch]) -> LearningCurve:
    """The scores of ``epochs``."""
    scores = ((each.epoch, each.test_accuracy, each.test_loss) for each in epochs)
    return tuple((epoch, -loss if accuracy is None else accuracy) for epoch, accuracy, loss in scores)


class Pruned(Frozen):
    """Why a training was stopped early."""

    #: epoch after which it was stopped
    epoch: Count
    #: pruner that stopped it
    pruner: Pruner


class TrainingResult(Memory):
    """What a complete training trial has."""

    kind: Literal["training"] = "training"
    #: one entry an epoch
    epochs: tuple[Epoch, ...] = Field(min_length=1)
    #: epochs that came from a checkpoint
    resumed_after: Whole = 0
    #: why it was stopped early; null: all epochs were trained
    stopped_by: Pruned | None = None
    #: busy share of each rank's device while training, 0 to 1
    device_utilization: tuple[Duration | None, ...] = ()
    #: where the trained model is, below the results directory; null: it was not kept
    model: str | None = None
    #: what could not be had, each with the reason
    missing: dict[str, str] = Field(default_factory=dict)


class MessageBlock(Frozen):
    """Operations of one collective on one message, one after the other, after those thrown away."""

    #: what ran
    collective: Collective
    #: message as nccl-tests counts it: of all_gather the output, of reduce_scatter the input
    message_bytes: Count
    #: time of one operation, mean over the block, one for each of the record's `ranks`, in s
    time_s: tuple[Seconds, ...] = Field(min_length=1)
    #: operations that count
    num_operations: Count

    @property
    def slowest_s(self) -> float:
        """Of the slowest rank: the time of the operation."""
        return max(self.time_s)


class MessageRound(Frozen):
    """One block of each collective and message, in the order in which they ran."""

    #: one block of each collective and message, in the order in which they ran
    blocks: tuple[MessageBlock, ...] = Field(min_length=1)
    #: since the first round began, in s
    at_s: Duration


class CollectivesResult(Frozen):
    """What a complete trial of a sweep has."""

    kind: Literal["collectives"] = "collectives"
    #: `gloo` or `nccl`
    backend: str
    #: the measurements
    rounds: tuple[MessageRound, ...] = Field(min_length=1)
