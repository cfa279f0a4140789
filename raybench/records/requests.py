"""What is asked of a trial: one class for each kind of question, told apart by ``kind``.

``steps``: rounds of variants. ``probe``: does this batch fit in memory? ``training``: whole epochs.
``collectives``: rounds of messages. All hold ``config``: where something is run, and, of a study, what. A
further kind is a further class here, with a result of the same kind.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Hashable
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from raybench.records.base import Count, Duration, Finite, Frozen, Whole, Workers
from raybench.spec.knobs import DEFAULTS, KnobValue, Setting
from raybench.spec.placement import Placement, placement_words
from raybench.spec.study import MeasureSpec, OptimizerSpec, Pruner, TrainingSpec
from raybench.spec.sweep import Collective, SweepMeasureSpec
from raybench.spec.workloads import WorkloadSpec

#: search: to find the best suggestion at the target world size, or the largest batch that fits
#: scaling: a setting at one of the world sizes, with all variants: the default's and the winner's scaling
#:   curves, and all of a grid
#: training: whole epochs with evaluation
#: verification: to test what a diagnosis claims: `--verify`
#: communication: a sweep of collectives
Role = Literal["search", "scaling", "training", "verification", "communication"]
COMPARED_ROLES: tuple[Role, ...] = ("scaling", "search")  # trials by which settings are compared
StepsRole = Literal["search", "scaling", "verification"]
AsIfVariant = Literal["as_if_1", "as_if_2", "as_if_3", "as_if_4"]
AS_IF: tuple[AsIfVariant, ...] = get_args(AsIfVariant)
#: plain: one device alone, without wrapper; another device in each round
#: base: the same at the global batch (strong scaling)
#: concurrent: all devices at once, without communication
#: local: DDP with a hook that sends nothing; FSDP with collectives that send nothing, on its own shards
#: ddp: the real thing, under whatever strategy
#: replay: the all-reduces of the real buckets, or the collectives of FSDP, without compute
#: anchor: the real thing with another setting: the study's default; in a verification the unchanged one
#: as_if_1: the real thing, its collectives as long as on the first number of devices of `as_if`
#: as_if_2: the same of the second
#: as_if_3: the same of the third
#: as_if_4: the same of the fourth
Variant = Literal["plain", "base", "concurrent", "local", "ddp", "replay", "anchor", AsIfVariant]

# Evaluated epochs of one training, each with its score, the larger the better: the test accuracy, without
# one the negative test loss.
LearningCurve = tuple[tuple[Count, Finite], ...]


class Place(Frozen):
    """Where something is run, whatever it is: the part that requests of every kind hold."""

    #: one value of each process knob
    environment: dict[str, str] = Field(default_factory=dict)
    #: number of devices
    world_size: Workers
    #: `pack`, `spread`, or a list of ranks, as the study has it
    placement: Placement = "pack"
    #: kind of device
    device: Literal["cpu", "cuda"] = "cpu"
    #: cores of each worker
    cpus_per_worker: Count = 1
    #: whether the group had more workers than there are cores
    oversubscribed: bool = False
    #: seed of weights, batches and the order of blocks
    seed: int = 0


class Configuration(Place):
    """What is trained, and where: of the requests of a study."""

    #: the study's `[workload]`
    workload: WorkloadSpec
    #: the study's `[optimizer]`
    optimizer: OptimizerSpec
    #: one value of each knob
    setting: Setting
    #: what stays the same: the batch per device, or the global batch
    scaling: Literal["weak", "strong"] = "weak"
    #: directory with the data sets
    data: str | None = None

    # What may differ, as ``ignore`` of ``key``, between configurations ...
    ANY_WORKERS: ClassVar[tuple[str, ...]] = ("cpus_per_worker", "oversubscribed", "seed")
    ANY_SIZE: ClassVar[tuple[str, ...]] = ("world_size", "placement", *ANY_WORKERS)  # ... of one question
    # ... of one setting, and (ANY_WORKLOAD) of one setting at one size and placement
    ANY_USE: ClassVar[tuple[str, ...]] = ("workload", "optimizer", "data", "device", *ANY_SIZE)
    ANY_WORKLOAD: ClassVar[tuple[str, ...]] = (
        "workload", "optimizer", "scaling", "data", "device", *ANY_WORKERS,
    )  # fmt: skip

    def key(self, world_size: int | None = None, ignore: Collection[str] = ()) -> Hashable:
        """Return what is equal for configurations that are equal but for ``ignore``: fields, and knobs.

        ``world_size``: knobs that have no effect on so many devices do not count either.
        """
        fields = self.model_dump(mode="json", exclude={"setting", *ignore})
        return self.setting.key(world_size, ignore), json.dumps(fields, sort_keys=True)

    def same_question(self, other: Configuration) -> bool:
        """Whether the two differ in nothing but world size and placement.

        On one device the knobs that have no effect there are left out of the comparison.
        """
        least = min(self.world_size, other.world_size)
        return self.key(least, self.ANY_SIZE) == other.key(least, self.ANY_SIZE)

    def same_setting(self, other: Configuration) -> bool:
        """Whether the two are one suggestion: the setting and variables, each as its own world size has it.

        A batch is of a device, or of all: as the scaling says.
        """
        return self.key(self.world_size, self.ANY_USE) == other.key(other.world_size, self.ANY_USE)

    @property
    def batch_size(self) -> int:
        """Samples of one micro-batch on one device."""
        return self.micro_batch(self.setting)

    def micro_batch(self, setting: Setting) -> int:
        """Samples of one micro-batch on one device under ``setting``."""
        if self.scaling == "weak":
            return setting.batch_size
        return setting.batch_size // (self.world_size * setting.gradient_accumulation)

    @property
    def samples_per_pass(self) -> int:
        """Samples of all devices in one of a step's passes: its micro-batches."""
        return self.batch_size * self.world_size

    @property
    def global_batch_size(self) -> int:
        """Samples of all devices in one optimizer step."""
        return self.samples_per_pass * self.setting.gradient_accumulation

    def script_values(self) -> dict[str, KnobValue]:
        """What the placeholders in a script's arguments stand for; the batch is one device's micro-batch."""
        own: dict[str, KnobValue] = {
            "batch_size": self.batch_size,
            "global_batch_size": self.global_batch_size,
            "world_size": self.world_size,
            "seed": self.seed,
        }
        return self.setting.model_dump() | own

    def differences(self, other: Configuration) -> dict[str, KnobValue]:
        """The knobs, variables and placement in which this differs from ``other``, with its own values.

        Under strong scaling more accumulation of the same passes is one change, that of the accumulation:
        the global batch grows with it.
        """
        changes: dict[str, KnobValue] = dict(self.setting.differences(other.setting))
        if self.samples_per_pass == other.samples_per_pass and "gradient_accumulation" in changes:
            changes.pop("batch_size", None)
        for name in sorted({*self.environment, *other.environment}):
            if self.environment.get(name) != other.environment.get(name):
                changes[name] = self.environment.get(name)
        if self.placement != other.placement:
            changes["placement"] = placement_words(self.placement)
        return changes


class _Request(Frozen):
    """What requests of every kind have: a place, and an id made of what is asked."""

    # How long it may take, how often, and how many cores there are: not part of the question.
    NOT_ASKED: ClassVar[dict[str, Any]] = {}

    config: Place

    @property
    def trial_id(self) -> str:
        """Twelve hexadecimal digits of SHA-256 over what is asked, ``kind`` and ``role`` included.

        How long it may take is left out: a study resumed with longer time-outs measures nothing twice. So is
        what is kept beside the numbers (a trained model, a profile), and a knob at its default: one that a
        later raybench adds changes no id.
        """
        asked = self.model_dump(mode="json", exclude={"config": {"oversubscribed"}, **self.NOT_ASKED})
        for part, name in ((asked["config"], "setting"), (asked, "anchor")):
            if part.get(name):
                part[name] = {knob: value for knob, value in part[name].items() if value != DEFAULTS[knob]}
        # the first visit is the trial itself, in the first start; a further one is another trial
        unasked = [name for name in ("visit", "start", "as_if") if not asked.get(name)]
        asked = {name: value for name, value in asked.items() if name not in unasked}
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class AsIf(Frozen):
    """So many devices, as which a trial on fewer is measured too."""

    #: number of devices
    world_size: Workers
    #: nodes that they fill; null: they are joined as those of the trial are
    nodes: Workers | None = None
    #: what joins them; null: the same
    network: str | None = None
    #: of their all-reduce, by each algorithm: latency in s, and time for a byte in s, of which the fastest
    #: counts; empty: the trial's own, for so many
    lines: tuple[tuple[Duration, Duration], ...] = ()
    #: the same where the network is as slow as it may be
    slow_lines: tuple[tuple[Duration, Duration], ...] = ()
    #: and as fast
    fast_lines: tuple[tuple[Duration, Duration], ...] = ()


class StepsRequest(_Request):
    """Rounds of blocks of steps, a block of each variant in every round."""

    # A study that goes on with more starts keeps those that it has; a profile changes nothing of the rounds.
    NOT_ASKED: ClassVar[dict[str, Any]] = {
        "measure": {"timeout_seconds", "max_seconds", "starts", "profile"},
        "anchor_failure": True,
    }

    config: Configuration
    kind: Literal["steps"] = "steps"
    #: what the trial was for
    role: StepsRole
    #: what each round runs
    variants: tuple[Variant, ...]
    #: the study's `[measure]`
    measure: MeasureSpec
    #: the setting whose `ddp` is measured in the same rounds as `anchor`: the study's default, of a setting
    #: that differs from it at the target world size; in a verification the unchanged setting; else null
    anchor: Setting | None = None
    #: how the default's own trial has failed: then the anchor is not tried; else null
    anchor_failure: str | None = None
    #: which visit of this setting here, from 0; visits are spread over the study
    visit: Whole = 0
    #: which start of the workers, of `measure.starts`, from 0; of `scaling` only
    start: Whole = 0
    #: numbers of devices as which it is measured too: `as_if_1` is the first
    as_if: tuple[AsIf, ...] = ()

    @property
    def measures_beside_rounds(self) -> bool:
        """Whether phases, loss parity and the device's peak are measured too, when the rounds are done.

        Once for a setting: in its first visit of the curve, where a search has visited it before the second.
        """
        return self.role == "scaling" and self.visit <= (self.anchor is not None)

    @property
    def planned_group(self) -> Hashable:
        """What a worker group serves, if nothing ends it: one start, and the variables of its processes."""
        return self.start, frozenset(self.config.environment.items())

    @property
    def timeout_s(self) -> float:
        """After this the trial is ended, in s."""
        return self.measure.timeout_seconds


class ProbeRequest(_Request):
    """Does this batch fit in memory? A few steps, of which memory is read and speed is not."""

    NOT_ASKED: ClassVar[dict[str, Any]] = {"timeout_seconds": True}

    config: Configuration
    kind: Literal["probe"] = "probe"
    role: Literal["search"] = "search"
    #: after this the trial is ended, in s
    timeout_seconds: float

    @property
    def timeout_s(self) -> float:
        """After this the trial is ended, in s."""
        return self.timeout_seconds


class TrainingRequest(_Request):
    """Whole epochs with evaluation, with one seed."""

    NOT_ASKED: ClassVar[dict[str, Any]] = {
        "training": {"timeout_seconds", "save_model", "settings"},
        "pruner": True,
        "peers": True,
    }

    config: Configuration
    kind: Literal["training"] = "training"
    role: Literal["training"] = "training"
    #: the study's `[training]`, with one seed
    training: TrainingSpec
    #: the study's `search.pruner`
    pruner: Pruner = "none"
    #: ended trainings that the pruner compares this one with: of each the epochs with test
    #: accuracy, or the negative test loss
    peers: tuple[LearningCurve, ...] = ()

    @property
    def timeout_s(self) -> float:
        """After this the trial is ended, in s."""
        return self.training.timeout_seconds

    @property
    def reference_batch(self) -> int:
        """Samples of the optimizer step to which the optimizer's learning rate belongs: one device's."""
        if self.training.reference_batch is not None:
            return self.training.reference_batch
        setting = self.config.setting
        weak = self.config.scaling == "weak"
        return setting.batch_size * (setting.gradient_accumulation if weak else 1)

    @property
    def learning_rate_factor(self) -> float:
        """What the optimizer's learning rate is multiplied with.

        Linear: Goyal et al. (2017), "Accurate, large minibatch SGD", section 2.1. World size: also where the
        devices share one global batch.
        """
        linear = self.config.global_batch_size / self.reference_batch
        factors = {"none": 1.0, "linear": linear, "world_size": self.config.world_size}
        return factors[self.training.learning_rate_scaling]


class CollectivesRequest(_Request):
    """Rounds of blocks of collectives, a block of each collective and message in every round."""

    NOT_ASKED: ClassVar[dict[str, Any]] = {"measure": {"timeout_seconds", "max_seconds"}}

    kind: Literal["collectives"] = "collectives"
    role: Literal["communication"] = "communication"
    #: what is timed
    collectives: tuple[Collective, ...]
    #: sizes of the messages, ascending, in bytes
    message_bytes: tuple[Count, ...]
    #: the sweep's `[measure]`
    measure: SweepMeasureSpec

    @property
    def timeout_s(self) -> float:
        """After this the trial is ended, in s."""
        return self.measure.timeout_seconds


StudyRequest = StepsRequest | ProbeRequest | TrainingRequest
TrialRequest = Annotated[StudyRequest | CollectivesRequest, Field(discriminator="kind")]
