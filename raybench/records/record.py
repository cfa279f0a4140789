"""What is asked of a trial and what comes back: the schema of ``trials.jsonl``.

Records hold raw measurements only (block means of every rank, variant and round); every statistic is
computed on reading, by ``raybench.analysis``.

History of the schema, newest first:

1. The first. Before any release: records of training trials (``request.training``, ``training``), which
   may be without a measurement.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec, Placement
from raybench.spec.training import TrainingSpec
from raybench.spec.workloads import WorkloadSpec

SCHEMA_VERSION = 1

Role = Literal["search", "scaling", "confirmation", "verification"]
State = Literal["complete", "oom", "timeout", "crashed", "invalid"]
# plain: one device alone, no wrapper. base: the same at the global batch (strong scaling).
# crowd: all devices, no communication. local: DDP without transfers. synced: the real thing.
# replay: the all-reduces of the real buckets, no compute. versus: synced, with the other setting.
Variant = Literal["plain", "base", "crowd", "local", "synced", "replay", "versus"]
Phase = Literal["data", "forward", "backward", "optimizer", "other"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrialRequest(_Frozen):
    """Everything that a worker must know to measure one trial; its hash is the trial's id."""

    role: Role
    workload: WorkloadSpec
    optimizer: OptimizerSpec
    setting: Setting
    fit: bool = False  # a probe of batch_size = "max": does this batch fit? Memory is read, speed is not
    versus: Setting | None = None  # confirmation: measured in the same rounds
    environment: dict[str, str] = Field(default_factory=dict)
    scaling: Literal["weak", "strong"] = "weak"
    world_size: int
    placement: Placement = "pack"
    variants: tuple[Variant, ...]
    measure: MeasureSpec
    data: str | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    cpus_per_worker: int = 1
    oversubscribed: bool = False
    seed: int = 0
    training: TrainingSpec | None = None  # whole epochs, in place of the variants' steps

    @property
    def trial_id(self) -> str:
        """Twelve hexadecimal digits of SHA-256 over what was asked.

        How long it may take is left out: a study resumed with a longer ``measure.timeout_seconds``
        measures nothing twice. So is ``fit`` where it is off: ids stay as they were before it was there.
        """
        asked = self.model_dump(mode="json", exclude={"measure": {"timeout_seconds"}, "oversubscribed": True})
        if not self.fit:
            del asked["fit"]
        training = asked.pop("training")  # without one, the ids are those from before there was any
        if training is not None:
            asked["training"] = {k: v for k, v in training.items() if k != "timeout_seconds"}
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def timeout_s(self) -> float:
        """After this the trial is ended, in s."""
        return self.measure.timeout_seconds if self.training is None else self.training.timeout_seconds

    @property
    def batch_size(self) -> int:
        """Samples of one micro-batch on one device."""
        return self.micro_batch(self.setting)

    def micro_batch(self, setting: Setting) -> int:
        """Samples of one micro-batch on one device under ``setting``."""
        if self.scaling == "weak":
            return setting.batch_size
        return setting.batch_size // (self.world_size * setting.gradient_accumulation)

    def differences(self, other: TrialRequest) -> dict[str, KnobValue]:
        """The knobs, variables and placement of this request that differ from ``other``'s, with its values.

        Under strong scaling more accumulation of the same passes is one change, that of the accumulation:
        the global batch grows with it.
        """
        found: dict[str, KnobValue] = dict(self.setting.differences(other.setting))
        if self.samples_per_pass == other.samples_per_pass and "gradient_accumulation" in found:
            found.pop("batch_size", None)
        for name in sorted({*self.environment, *other.environment}):
            if self.environment.get(name) != other.environment.get(name):
                found[name] = self.environment.get(name)
        if self.placement != other.placement:
            place = self.placement
            found["placement"] = place if isinstance(place, str) else "ranks " + " ".join(map(str, place))
        return found

    @property
    def samples_per_pass(self) -> int:
        """Samples of all devices in one of a step's passes: its micro-batches."""
        return self.batch_size * self.world_size

    @property
    def global_batch_size(self) -> int:
        """Samples of all devices in one optimizer step."""
        return self.batch_size * self.world_size * self.setting.gradient_accumulation

    @property
    def reference_batch(self) -> int:
        """Samples of the optimizer step to which the optimizer's learning rate belongs: one device's."""
        if self.training is not None and self.training.reference_batch is not None:
            return self.training.reference_batch
        setting = self.setting
        return setting.batch_size * (setting.gradient_accumulation if self.scaling == "weak" else 1)


class Block(_Frozen):
    """Steps of one variant in one round, after those thrown away."""

    variant: Variant
    ranks: tuple[int, ...]  # who worked, as ranks of the worker group
    step_time_s: tuple[float, ...]  # mean over steps, one for each of ``ranks``
    slowest_s: float  # mean over steps of the slowest rank, ranks aligned step by step
    num_steps: int

    @property
    def mean_s(self) -> float:
        """Mean over steps and ranks, in s."""
        return sum(self.step_time_s) / len(self.step_time_s)


class Round(_Frozen):
    """One block of each variant, in the order in which they ran."""

    blocks: tuple[Block, ...]
    at_s: float  # since the first round began
    load_average: float | None = None  # of the host of rank 0
    clock_mhz: tuple[float | None, ...] = ()  # of each rank's device, after the round
    throttled: tuple[bool | None, ...] = ()

    def block(self, variant: Variant) -> Block | None:
        """The block of ``variant``, if the round has one."""
        return next((block for block in self.blocks if block.variant == variant), None)


class PhaseBlock(_Frozen):
    """Phases of a step, timed apart from the rounds; mean over the block's steps and the ranks."""

    variant: Literal["plain", "local", "synced"]
    seconds: dict[Phase, float]
    num_steps: int


class LossParity(_Frozen):
    """Losses and gradients from the same weights on the same samples, beside those of one device.

    The one device takes the samples of all ranks in the same pieces and averages their gradients, so that
    batch statistics are the same; dropout draws the same masks in each piece.
    """

    samples_per_step: int  # of all ranks
    # step by step, mean over ranks and micro-batches, before the step's update; None: not finite
    losses: tuple[float | None, ...]
    reference_losses: tuple[float | None, ...]
    # |g - g1| / |g1| of the first step's averaged gradient and one device's, Euclidean norms: at a small
    # learning rate losses say nothing of gradients. None: not finite, or a step that fp16 skipped
    gradient_difference: float | None = None
    may_differ: tuple[str, ...] = ()  # what in the model makes a difference legitimate


class Measurement(_Frozen):
    """What a complete trial has."""

    rounds: tuple[Round, ...]  # none in a probe of the largest batch
    stopped_by: Literal["half_width", "max_seconds", "steps"]
    batch_size: int  # micro-batch of one device
    global_batch_size: int
    samples_per_step: float  # of all ranks
    tokens_per_step: float | None = None
    versus_samples_per_step: float | None = None
    warmup_steps: int
    setup_s: float
    warmup_s: float
    measure_s: float
    gradient_bytes: int | None = None  # of one rank, what travels in a step
    bucket_bytes: tuple[int, ...] = ()
    missing: dict[Variant, str] = Field(default_factory=dict)  # variants that could not be had, and why
    phases: tuple[PhaseBlock, ...] = ()
    ddp_logger: dict[str, float] | None = None  # times of DDP's own logger, in s
    flops_per_step: float | None = None  # of one device
    matrix_peak_flops_per_s: float | None = None  # measured, of one device alone
    peak_memory_bytes: tuple[int, ...] | None = None  # each rank, as torch counts it
    device_memory_bytes: tuple[int, ...] | None = (
        None  # each rank, as the device (CPU: the process) counts it
    )
    memory_limit_bytes: tuple[int, ...] | None = None  # each rank: its GPU's memory, its share of the host's
    # each rank: what does not grow with the batch (weights, gradients, buckets, optimizer); probes on CPUs
    fixed_memory_bytes: tuple[int, ...] | None = None
    device_utilization: tuple[float | None, ...] | None = None  # 0 to 1
    energy_joules: float | None = None  # of all devices, per synced step
    loss: float | None = None  # after the last round
    parity: LossParity | None = None  # scaling trials: does the strategy train what one device trains?
    parity_missing: str | None = None  # why it could not be had
    # |compressed - exact| / |exact|, Euclidean norms of the averaged gradient of one step
    compression_error: float | None = None


class GradientNorms(_Frozen):
    """Squared norms of the gradients of one big batch and of the small ones that it consists of."""

    small_batch: int  # samples
    small_square: float  # mean over the small batches
    big_batch: int  # samples, of all small ones together
    big_square: float


class Epoch(_Frozen):
    """One pass over the training samples, all ranks together."""

    epoch: int  # from 1
    steps: int  # of the optimizer
    samples: tuple[int, ...]  # that each rank trained on
    learning_rate: float  # of the first parameter group, in the epoch's last step
    train_loss: float  # mean over samples, each as the model was when it trained on it
    train_correct: int | None = None  # None: the workload has no metric
    train_s: float  # on the slowest rank
    test_loss: float | None = None  # None: not evaluated after this epoch
    test_correct: int | None = None
    test_samples: int | None = None
    evaluation_s: float | None = None
    noise: tuple[GradientNorms, ...] = ()
    noise_s: float = 0.0
    checkpoint_s: float = 0.0

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


class TrainingResult(_Frozen):
    """What a complete training trial has."""

    epochs: tuple[Epoch, ...]
    global_batch_size: int
    reference_batch: int
    peak_learning_rate: float  # after scaling and warm-up
    setup_s: float
    resumed_after: int = 0  # epochs that came from a checkpoint
    peak_memory_bytes: tuple[int, ...] | None = None  # each rank, as torch counts it
    device_memory_bytes: tuple[int, ...] | None = None  # as the device (CPU: the process) counts it
    device_utilization: tuple[float | None, ...] = ()  # each rank, while training; CPUs: of its cores
    weights_difference: float | None = None  # largest between two ranks, at the end
    missing: dict[str, str] = Field(default_factory=dict)  # what could not be had, and why


class TrialRecord(_Frozen):
    """One line of ``trials.jsonl``."""

    schema_version: int = SCHEMA_VERSION
    study: str
    trial_id: str
    suggestion: int | None = None  # Optuna's number, or the place in the grid
    request: TrialRequest
    state: State
    reason: str | None = None
    ranks: tuple[int, ...] = ()  # of the worker group, that took part
    nodes: int | None = None
    device_name: str | None = None
    group: int = 0  # counts the worker groups of the study
    started_at: str  # ISO 8601, UTC
    wall_time_s: float
    measurement: Measurement | None = None
    training: TrainingResult | None = None

    @model_validator(mode="after")
    def _only_complete_has_numbers(self) -> Self:
        has_numbers = self.measurement is not None or self.training is not None
        if (self.state == "complete") != has_numbers:
            raise ValueError("a trial has a measurement or a training exactly when it is complete")
        if self.state != "complete" and not self.reason:
            raise ValueError("a trial that is not complete has a reason")
        return self

    def to_line(self) -> str:
        """One line of JSON, without the line's end."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TrialRecord:
        """The record of one line, decoded; raises pydantic's ``ValidationError`` on a foreign one."""
        return cls.model_validate(data)
