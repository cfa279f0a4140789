"""The models of a study: every field with its default, meaning and unit."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from raybench.spec.base import (
    LONGEST_S,
    Fraction,
    Listed,
    ListOrValue,
    Model,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seconds,
    Switch,
    no_repeats,
    timeout_is_longer,
)
from raybench.spec.knobs import MAX, Knobs, KnobValue, Setting
from raybench.spec.network import NetworkOrName
from raybench.spec.placement import Placement
from raybench.spec.user_input import did_you_mean
from raybench.spec.workloads import ScriptSpec, WorkloadSpec

MOST_STARTS = 20  # of the workers, for one study
MOST_VISITS = 100  # of one setting at one world size
MOST_AS_IF = 4  # further numbers of devices: each is one more block in a round
AsIfDevices = Annotated[PositiveInt, Field(le=2**20)]
MOST_SEEDS = 1000


# Ray sets these for each worker; a study that sets them breaks the process group.
RESERVED_VARIABLES = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


def _not_reserved(name: str) -> str:
    if not name or {"=", "\0"} & {*name}:
        raise ValueError("the name of an environment variable")
    if name in RESERVED_VARIABLES:
        raise ValueError("not a study's to set: Ray sets it for each worker")
    return name


def _text(value: Any) -> Any:
    """A variable is text: ``1`` is "1" there, and ``true`` is "true"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


Variable = Annotated[str, AfterValidator(_not_reserved)]
Texts = Annotated[tuple[Annotated[str, BeforeValidator(_text)], ...], Field(min_length=1), ListOrValue]
Pruner = Literal["none", "median", "successive_halving", "hyperband"]
Objective = Literal["throughput", "efficiency", "cost_per_sample", "peak_memory"]


class OptimizerSpec(Model):
    """The optimizer of the workload, unless the workload brings its own."""

    name: Literal["sgd", "adam", "adamw"] = Field("sgd", description="of torch.optim")
    learning_rate: PositiveFloat = Field(0.01, description="learning rate, before any scaling by [training]")
    momentum: float = Field(0.0, ge=0, lt=1, strict=True, description="of sgd")
    weight_decay: NonNegativeFloat = Field(0.0, description="as torch.optim takes it")


def _placements(value: Any) -> Any:
    """One placement stands for a list of one."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(rank, int) for rank in value):
        return (tuple(value),)
    return value


Placements = Annotated[tuple[Placement, ...], BeforeValidator(_placements), AfterValidator(no_repeats)]


class ScalingSpec(Model):
    """What stays the same while devices are added, and where the workers stand."""

    mode: Literal["weak", "strong"] = Field(
        "weak", description="weak: the batch per device stays the same; strong: the global batch does"
    )
    world_sizes: Literal["all"] | Annotated[Listed[PositiveInt], Field(min_length=1)] = Field(
        "all",
        description='numbers of devices; "all": 1, 2, 4, ... and every device; under strong scaling those '
        "over which the batches can be divided",
    )
    placement: Placements = Field(
        ("pack",),
        min_length=1,
        description="pack takes as few nodes as can be, spread one device of each in turn, a list of ranks "
        "is itself",
    )
    as_if: Annotated[Listed[AsIfDevices], Field(max_length=MOST_AS_IF)] | None = Field(
        None,
        description="further numbers of devices, measured in the rounds of the target world size as if there "
        "were that many: collectives last as long as on them; unset: in a last visit the next two doublings "
        "of several nodes, whose network is measured with them",
    )


class SearchSpec(Model):
    """How settings are chosen."""

    method: Literal["optuna", "grid", "ablation"] = Field(
        "grid",
        description="grid: every combination of the values; ablation: the default, each other value alone, "
        "and the last of every list together",
    )
    trials: PositiveInt = Field(24, description="suggestions that Optuna makes")
    sampler: Literal["main_effects", "tpe", "gp", "random"] = Field(
        "main_effects",
        description="what suggests the next setting: raybench's main effects (of more than 4,096 settings "
        "any), or an Optuna sampler",
    )
    pruner: Pruner = Field(
        "none", description="Optuna's pruner that stops trainings early which learn too little"
    )
    objectives: Listed[Objective] = Field(
        ("throughput",), min_length=1, description="what is best; several: the Pareto front"
    )
    max_batch_size: PositiveInt = Field(
        65536, description='the largest that batch_size = "max" tries, as batch_size counts'
    )
    minimum_gain: Fraction = Field(0.02, description="relative; less is as good")


COMPILING = 3.0  # times ``timeout_seconds``: every rank compiles, for minutes where the model is large


class MeasureSpec(Model):
    """How long and how exactly a trial is measured."""

    half_width: Fraction | None = Field(
        None,
        description="of the efficiency's 95% interval over all visits, relative; unset: 0.05 on CPUs, 0.02 "
        "on GPUs",
    )
    max_seconds: Seconds = Field(20.0, description="the rounds of a trial end after this time, in s")
    timeout_seconds: Seconds = Field(
        300.0,
        description="a trial is ended after this time, in s; after three times as long where torch compiles "
        "its model",
    )
    visits: Annotated[int, Field(ge=1, le=MOST_VISITS, strict=True)] = Field(
        3,
        description="how often default and winner are visited at each world size, spread over the study",
    )
    starts: Annotated[int, Field(ge=1, le=MOST_STARTS, strict=True)] = Field(
        1,
        description="worker starts over which the visits are spread, one visit in each at least; from 2 on "
        "intervals hold what starts differ by",
    )
    min_rounds: Annotated[int, Field(ge=3, strict=True)] = Field(
        10, description="the least number of rounds of all visits together; 3 in each"
    )
    steps: PositiveInt | None = Field(
        None, description="steps of a block, for min_rounds rounds; unset: as many as the interval needs"
    )
    warmup_steps: NonNegativeInt | None = Field(
        None, description="steps before the first round; unset: until the step time is steady"
    )
    profile: Switch = Field(
        False,
        description="traces of torch.profiler, of a few steps of the default and of what is best, at the "
        "target world size, when their rounds are done",
    )

    _timeout = model_validator(mode="after")(timeout_is_longer)


def _seeds(value: Any) -> Any:
    """A number of seeds stands for 0, 1, 2, ..."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        if value > MOST_SEEDS:
            raise ValueError(f"at most {MOST_SEEDS:,} seeds")
        return tuple(range(value))
    return value


class TrainingSpec(Model):
    """How a model is trained to an accuracy, on one device and on several."""

    epochs: PositiveInt = Field(3, description="passes over the training samples")
    learning_rate_scaling: Literal["none", "linear", "world_size"] = Field(
        "none",
        description="how the learning rate grows: with the ratio of global batch to reference batch, or the "
        "number of devices whatever the batch",
    )
    reference_batch: PositiveInt | None = Field(
        None,
        description="samples of an optimizer step to which optimizer.learning_rate belongs; "
        "unset: those of one device",
    )
    warmup_epochs: NonNegativeFloat = Field(
        0.0,
        description="epochs in which the learning rate rises evenly from 0 to the scaled one, at which it "
        "stays; 0 leaves it to the workload's scheduler, if it has one",
    )
    seeds: Annotated[
        tuple[NonNegativeInt, ...], Field(min_length=1), BeforeValidator(_seeds), AfterValidator(no_repeats)
    ] = Field((0,), description="of weights and order of samples, a trial each; a number n: 0 to n - 1")
    settings: Literal["default", "measured"] = Field(
        "default",
        description="what is trained: the default (of an ablation all changes together too); measured: at "
        "the target world size every measured setting too, of those that learn equally the fastest",
    )
    target_accuracy: Fraction | None = Field(
        None, description="of the test samples, 0 to 1, for which time and samples are reported; unset: none"
    )
    tolerance_points: PositiveFloat = Field(
        0.4, description="percentage points of accuracy within which two results are the same"
    )
    checkpoint: Switch = Field(True, description="write a checkpoint after each epoch, and go on from it")
    save_model: Switch = Field(
        False, description="keep each trained model: models/ in the results, as safetensors"
    )
    timeout_seconds: Seconds = Field(7200.0, description="a training trial is ended after this time, in s")

    def warmup_factor(self, step: int, steps_per_epoch: int) -> float:
        """Share of the scaled learning rate that optimizer step ``step`` (from 0) takes."""
        warmup = round(self.warmup_epochs * steps_per_epoch)
        return (step + 1) / warmup if step < warmup else 1.0


class CostSpec(Model):
    """A price."""

    price_per_device_hour: PositiveFloat | None = Field(None, description="in your currency, for one device")


class ResourcesSpec(Model):
    """What each worker gets."""

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: GPUs where there are any")
    cpus_per_worker: PositiveInt = Field(1, description="cores of one device on CPUs, and of a GPU's worker")
    oversubscribe: Switch = Field(False, description="more workers than cores, marked so; never on GPUs")
    wait_seconds: NonNegativeFloat = Field(
        60.0, le=LONGEST_S, description="how long nodes of a cluster that come late are waited for, in s"
    )


class Study(Model):
    """One question on one workload."""

    # How long to wait and how often, not what to measure: a study that goes on may have them changed.
    MAY_CHANGE_ON_RESUME: ClassVar[tuple[str, ...]] = (
        "measure.timeout_seconds", "measure.starts", "measure.profile",
        "training.timeout_seconds", "time_budget_seconds", "question", "is_smoke", "code_folder",
    )  # fmt: skip

    # of 100 characters at most: the results directory is called after the study
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$", description="what the study is called")
    question: str = Field(
        "", description="what the study asks, the title of its report; unset: the first line of its file"
    )
    is_smoke: bool = Field(False, description="whether [smoke] has replaced values; set by --smoke")
    workload: WorkloadSpec = Field(description="the model and its data")
    optimizer: OptimizerSpec = Field(OptimizerSpec(), description="how weights are updated")
    scaling: ScalingSpec = Field(ScalingSpec(), description="over which devices")
    network: NetworkOrName | None = Field(
        None,
        description="what joins the devices of scaling.as_if; unset: they are joined as those here are",
    )
    knobs: Knobs = Field(default_factory=lambda: Knobs(), description="the settings to explore")
    environment: dict[Variable, Texts] = Field(
        default_factory=dict, description="process knobs: environment variables and the values to explore"
    )
    search: SearchSpec = Field(SearchSpec(), description="how settings are chosen")
    measure: MeasureSpec = Field(MeasureSpec(), description="how long and how exactly")
    training: TrainingSpec | None = Field(
        None, description="whole epochs with evaluation, after the steps; unset: nothing is trained"
    )
    cost: CostSpec = Field(CostSpec(), description="prices")
    resources: ResourcesSpec = Field(ResourcesSpec(), description="what each worker gets")
    data: str | None = Field(None, description="directory with the data sets")
    code_folder: str | None = Field(
        None,
        description="where code of your own is looked for first; unset: next to the study's file, for a "
        "script that is a module the current directory",
    )
    seed: NonNegativeInt = Field(0, description="of weights, batches, the order of blocks, and the search")
    time_budget_seconds: Seconds | None = Field(
        None, description="for the whole command, report included, in s; unset: no limit"
    )
    smoke: dict[str, Any] = Field(default_factory=dict, description="what --smoke replaces, by dotted field")
    cuda: dict[str, Any] = Field(default_factory=dict, description="what GPUs replace, by dotted field")

    @model_validator(mode="after")
    def _possible(self) -> Study:
        self.check_world_sizes()
        if isinstance(self.workload, ScriptSpec):
            self._script_takes_all(self.workload)
        if self.training is not None and self.workload.input != "real":
            raise ValueError(f'training: needs workload.input = "real" (received {self.workload.input!r})')
        if self.search.pruner != "none" and (self.training is None or self.training.settings == "default"):
            raise ValueError(
                'search.pruner: needs training.settings = "measured", as the default is never stopped '
                f"(received {self.search.pruner!r})"
            )
        self._as_if_can_be()
        return self

    def check_world_sizes(self) -> None:
        """Raise ``ValueError`` where batches or placements do not go with the world sizes."""
        sizes = self.scaling.world_sizes
        if sizes == "all":  # until it is known what there is
            return
        for size in sizes:
            self._check_batches("knobs.batch_size", size)
        for placement in self.scaling.placement:
            if not isinstance(placement, str) and len(placement) not in sizes:
                raise ValueError(
                    f"scaling.placement: a list of ranks as long as one of the world sizes {list(sizes)} "
                    f"(received {list(placement)})"
                )

    def _check_batches(self, field: str, world_size: int) -> None:
        uneven = self.uneven_batch(world_size)
        if uneven is not None:
            raise ValueError(
                f"{field}: under strong scaling the global batch must be divisible by world size x "
                f"gradient_accumulation = {world_size} x {uneven[1]} (received {uneven[0]})"
            )

    def _script_takes_all(self, script: ScriptSpec) -> None:
        """What is asked of a script must reach it: by its arguments, or by the DDP that it makes."""
        known = (*Setting.model_fields, *script.OTHERS)
        for name in script.placeholders:
            if name not in known:
                hint = did_you_mean(name, known, "{{{}}}") or f"; there are {', '.join(known)}"
                raise ValueError(f"workload.args: {{{name}}} is not a knob{hint}")
        reached = {*script.placeholders, *script.DDP_KNOBS, "num_threads"}
        reached |= {"batch_size"} if "global_batch_size" in reached else set()
        for name, each in Setting.model_fields.items():
            values = self.knobs.values(name)
            is_typed = script.ddp_knobs is None and name in self.knobs.model_fields_set
            if name not in reached and (values != (each.default,) or is_typed):
                raise ValueError(
                    f"knobs.{name}: neither DDP nor the script's arguments take it; {{{name}}} in --args "
                    f"does (received {', '.join(map(str, values))})"
                )
        if self.optimizer != OptimizerSpec():
            raise ValueError("optimizer: a script has its own")
        if self.knobs.has_max:
            raise ValueError('knobs.batch_size: numbers for a script, which is not probed for "max"')
        if self.measure.profile:
            raise ValueError("measure.profile: a script is not profiled")
        varied = {"batch_size", "gradient_accumulation"} & {*self.knobs.explored()}
        if script.samples_per_step is not None and (varied or self.scaling.mode == "strong"):
            raise ValueError("workload.samples_per_step: of one batch and accumulation, under weak scaling")

    def _as_if_can_be(self) -> None:
        asked = self.scaling.as_if
        if not asked:
            if self.network is not None:
                raise ValueError("network: goes with scaling.as_if, the numbers of devices that it joins")
            return
        if isinstance(self.workload, ScriptSpec):
            raise ValueError("scaling.as_if: not of a script, whose collectives are its own")
        if self.knobs.default(largest=lambda _: 1).strategy != "ddp":
            raise ValueError("scaling.as_if: goes with ddp as the first of knobs.strategy (or after single)")
        for size in asked:
            if self.network is not None:
                self.network.nodes(size)
            self._check_batches("scaling.as_if", size)

    def with_own_knobs(self, own: Mapping[str, KnobValue]) -> Study:
        """The study, with the values of ``own`` for the knobs that it does not name; None: without one.

        Under strong scaling the batch is of all devices: there a batch and accumulation of one device say
        nothing.
        """
        named = set(self.knobs.model_fields_set)
        if self.scaling.mode == "strong":
            named |= {"batch_size", "gradient_accumulation"}
        if self.knobs.values("strategy") != ("ddp",) or "static_graph" in named:  # which exclude the others
            named |= {*Setting.DDP_ONLY}
        values = {name: (value,) for name, value in own.items() if name not in named and value is not None}
        return self.model_copy(update={"knobs": self.knobs.model_copy(update=values)}) if values else self

    @property
    def least_workers(self) -> int:
        """The workers that it names: of its largest world size, and of its lists of ranks."""
        sizes = () if self.scaling.world_sizes == "all" else self.scaling.world_sizes
        return max([1, *sizes, *(max(p) + 1 for p in self.scaling.placement if not isinstance(p, str))])

    def uneven_batch(self, world_size: int) -> tuple[int, int] | None:
        """Under strong scaling: a global batch, and an accumulation over which it cannot be divided evenly.

        An ablation multiplies the batch with the accumulation. "max" is found among those that divide.
        """
        if self.scaling.mode != "strong":
            return None
        accumulations = self.knobs.gradient_accumulation
        if self.search.method == "ablation":
            accumulations = accumulations[:1]
        pairs = itertools.product((each for each in self.knobs.batch_size if each != MAX), accumulations)
        return next((pair for pair in pairs if pair[0] % (world_size * pair[1])), None)
