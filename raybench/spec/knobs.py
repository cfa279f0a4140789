"""The knobs: settings that change between trials inside running processes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from typing import Annotated, Any, ClassVar, Literal, cast

from packaging.version import Version
from pydantic import BeforeValidator, Field, create_model

from raybench.spec.base import Listed, Model, NonNegativeInt, PositiveInt, Switch

KnobValue = str | int | float | bool | None
MAX = "max"  # of batch_size: the largest that fits in memory, found by trials before any other


BUCKET_RULE = 'a number of MiB above 0, several as "1/5/25", or "default"'


def bucket_cap(value: Any) -> Any:
    """A value of the knob ``bucket_cap_mb`` in its one spelling; ``ValueError`` for what breaks its rule."""
    if value == "default":
        return value
    try:
        is_list = isinstance(value, str) and "/" in value
        sizes = [float(each) for each in value.split("/")] if is_list else [value]
        if all(not isinstance(each, bool | str) and 0 < each < math.inf for each in sizes):
            return "/".join(f"{each:g}" for each in sizes) if is_list else value
    except (TypeError, ValueError):
        pass
    raise ValueError(BUCKET_RULE)


def bucket_sizes_mb(cap: float | str) -> tuple[float, ...]:
    """The caps in MiB of the first bucket, the second, ..., the last for all further ones.

    Not of "default".
    """
    return tuple(map(float, cap.split("/"))) if isinstance(cap, str) else (float(cap),)


class Setting(Model):
    """One value for each knob: what an Optuna trial or a point of the grid asks for."""

    strategy: Literal["single", "dp", "ddp", "fsdp"] = Field(
        "ddp",
        description="how the model is spread: one device, DataParallel, DistributedDataParallel, fully_shard",
    )
    batch_size: PositiveInt = Field(
        32, description="samples per device and micro-batch (weak scaling), or of all devices (strong)"
    )
    bucket_cap_mb: Annotated[float | str, BeforeValidator(bucket_cap)] = Field(
        "default",
        description="DDP's bucket size in MiB; \"1/5/25\" is DDP's bucket_cap_mb_list, from torch 2.14 on "
        '(the first bucket, the second, all further ones); "default" leaves DDP\'s own (25, the first one 1)',
    )
    precision: Literal["fp32", "tf32", "bf16", "fp16", "default"] = Field(
        "fp32",
        description="autocast over fp32 parameters (fsdp: its gathered copies are cast instead); tf32 on "
        "GPUs only; fp16 with a GradScaler. fp32, bf16 and fp16 switch TF32 off, for convolutions too, where "
        "torch has it on; default is fp32 with TF32 as torch has it",
    )
    gradient_accumulation: PositiveInt = Field(
        1, description="micro-batches per optimizer step; gradients travel with the last one only"
    )
    gradient_compression: Literal["none", "fp16", "bf16"] = Field(
        "none", description="the type in which gradients travel"
    )
    gradient_as_bucket_view: Switch = Field(False, description="gradients are views of DDP's buckets")
    static_graph: Switch = Field(False, description="DDP may take the graph as the same in every step")
    find_unused_parameters: Switch = Field(False, description="DDP looks for parameters without a gradient")
    broadcast_buffers: Switch = Field(True, description="DDP sends rank 0's buffers before each forward pass")
    batched_grad_copy: Switch = Field(
        False,
        description="DDP copies the gradients of a bucket at once, in two kernels; from torch 2.14 on",
    )
    skip_all_reduce_unused_params: Switch = Field(
        False,
        description="DDP sends no gradients of unused parameters, which must be the same on all ranks; from "
        "torch 2.14 on, with find_unused_parameters",
    )
    fsdp_reshard: Switch = Field(
        True, description="FSDP frees gathered parameters after the forward pass: memory against transfers"
    )
    activation_checkpointing: Switch = Field(
        False, description="repeated blocks compute their activations again in the backward pass"
    )
    compile: Switch = Field(False, description="torch.compile, for fixed shapes")
    channels_last: Switch = Field(
        False, description="memory format of images and weights: channels last (fsdp: of images alone)"
    )
    cudnn_benchmark: Switch = Field(False, description="cuDNN times its algorithms and takes the fastest")
    optimizer_kernels: Literal["default", "foreach", "fused"] = Field(
        "default",
        description="the optimizer updates all parameters in few kernels (foreach) or in one (fused); "
        "default leaves it as it was made: torch takes foreach on GPUs, parameter by parameter on CPUs",
    )
    num_threads: NonNegativeInt = Field(
        0, description="torch's threads in each worker; 0: as many as it has cores, on GPUs as torch has them"
    )
    workers: NonNegativeInt = Field(0, description="DataLoader processes of each rank, with real input")
    persistent_workers: Switch = Field(True, description="DataLoader processes live on between epochs")
    pin_memory: Switch = Field(True, description="the loader puts batches into pinned memory, on GPUs")

    # What only DDP looks at: other strategies leave it alone, or (the second line) cannot have it.
    DDPS_OWN: ClassVar[tuple[str, ...]] = (
        "bucket_cap_mb", "gradient_as_bucket_view", "broadcast_buffers", "batched_grad_copy",
    )  # fmt: skip
    DDP_ONLY: ClassVar[tuple[str, ...]] = (
        "gradient_compression", "static_graph", "find_unused_parameters", "skip_all_reduce_unused_params",
    )  # fmt: skip
    # What has no effect on CPUs.
    GPU_ONLY: ClassVar[tuple[str, ...]] = ("cudnn_benchmark", "pin_memory")
    # What has no effect where there is one device: measured once there, whatever its value.
    ONE_DEVICE_INDIFFERENT: ClassVar[tuple[str, ...]] = ("strategy", *DDPS_OWN, *DDP_ONLY, "fsdp_reshard")
    # What a strategy does not look at on several devices.
    STRATEGY_INDIFFERENT: ClassVar[dict[str, tuple[str, ...]]] = {
        "single": (),
        "dp": ("fsdp_reshard", *DDPS_OWN),
        "ddp": ("fsdp_reshard",),
        "fsdp": DDPS_OWN,
    }

    def indifferent(self, world_size: int) -> tuple[str, ...]:
        """The knobs that have no effect for this strategy on ``world_size`` devices."""
        return self.ONE_DEVICE_INDIFFERENT if world_size == 1 else self.STRATEGY_INDIFFERENT[self.strategy]

    def at(self, world_size: int) -> Setting:
        """The same setting with everything reset that cannot matter on ``world_size`` devices."""
        reset = {name: DEFAULTS[name] for name in self.indifferent(world_size)}
        return self.model_copy(update=reset | {"strategy": "single"} if world_size == 1 else reset)

    def key(self, world_size: int | None = None, ignore: Collection[str] = ()) -> Hashable:
        """Return what is equal for settings that are equal but for the knobs ``ignore``.

        ``world_size``: knobs that have no effect on so many devices do not count either.
        """
        setting = self if world_size is None else self.at(world_size)
        return tuple(value for name, value in vars(setting).items() if name not in ignore)

    # What changes the memory of a batch: "max" is found for each combination. The size of the buckets and
    # the type in which gradients travel change it by part of the gradients, once, whatever the batch.
    MEMORY_KNOBS: ClassVar[tuple[str, ...]] = (
        "strategy",
        "precision",
        "gradient_accumulation",
        "gradient_as_bucket_view",
        "fsdp_reshard",
        "channels_last",
        "compile",
        "activation_checkpointing",
    )

    def memory_key(self, world_size: int) -> Hashable:
        """Return what is equal for settings whose batches take equal memory on so many devices."""
        return tuple(map(vars(self.at(world_size)).get, self.MEMORY_KNOBS))

    # What changes how fast a model learns, and not what: a knob that is not here may change both.
    SPEED_ALONE: ClassVar[tuple[str, ...]] = (
        "bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters",
        "batched_grad_copy", "skip_all_reduce_unused_params", "fsdp_reshard", "activation_checkpointing",
        "compile", "channels_last", "cudnn_benchmark", "optimizer_kernels", "num_threads", "workers",
        "persistent_workers", "pin_memory",
    )  # fmt: skip

    def differences(self, other: Setting) -> dict[str, KnobValue]:
        """The knobs of this setting whose values differ from ``other``'s."""
        return {name: value for name, value in vars(self).items() if value != getattr(other, name)}

    # What a fault may come from; of the buckets only whether they are smaller than the compiler takes.
    FAULT_KNOBS: ClassVar[tuple[str, ...]] = (
        "strategy", "precision", *DDP_ONLY, "compile", "cudnn_benchmark", "bucket_cap_mb",
        "batched_grad_copy",
    )  # fmt: skip

    def fault(self, device: str) -> str | None:
        """Why no trial can have this setting on ``device`` ("cpu" or "cuda"), or None."""
        if self.precision == "tf32" and device == "cpu":
            return "precision tf32 exists on GPUs only"
        if self.cudnn_benchmark and device == "cpu":
            return "cudnn_benchmark exists on GPUs only"
        if self.strategy == "dp" and device == "cpu":
            return "strategy dp exists on GPUs only: DataParallel on CPUs is the bare model"
        if self.strategy in ("dp", "fsdp"):
            for name in self.DDP_ONLY:
                if (value := getattr(self, name)) != DEFAULTS[name]:
                    shown = f" {value}" if isinstance(value, str) else ""
                    return f"strategy {self.strategy} excludes {name}{shown}, which only ddp has"
        if self.static_graph and self.find_unused_parameters:
            return "static_graph excludes find_unused_parameters"
        if self.skip_all_reduce_unused_params and not self.find_unused_parameters:
            return "skip_all_reduce_unused_params needs find_unused_parameters"
        if self.strategy == "ddp" and (newer := self._since_2_14()) and torch_version() < Version("2.14"):
            return f"{newer} needs torch 2.14 (received torch {torch_version()})"
        if not self.compile:
            return None
        if self.strategy == "dp":
            return "compile excludes strategy dp, which copies the model in every step"
        cap = self.bucket_cap_mb
        if cap != "default" and min(bucket_sizes_mb(cap)) < LEAST_COMPILED_BUCKET_MB:
            return (
                f"compile excludes buckets under {LEAST_COMPILED_BUCKET_MB} MiB, torch's own first bucket, "
                f"after which it splits the graph (received {self.bucket_cap_mb})"
            )
        return None

    @property
    def has_bucket_list(self) -> bool:
        """Whether its buckets are of several sizes."""
        return isinstance(self.bucket_cap_mb, str) and self.bucket_cap_mb != "default"

    def _since_2_14(self) -> str:
        """What DDP has since torch 2.14; empty without any."""
        if self.has_bucket_list:
            return f"bucket_cap_mb {self.bucket_cap_mb}"
        names = ("batched_grad_copy", "skip_all_reduce_unused_params")
        return next((name for name in names if getattr(self, name)), "")


@cache
def torch_version() -> Version:
    """Of torch as it is installed here, which is not imported."""
    return Version(Version(metadata.version("torch")).base_version)


DEFAULTS: dict[str, KnobValue] = {name: each.default for name, each in Setting.model_fields.items()}
LEAST_COMPILED_BUCKET_MB = 1


class _Space(Model):
    """The values to explore, knob by knob; the first of each list is the study's default."""

    def values(self, knob: str) -> tuple[KnobValue, ...]:
        """The listed values of one knob."""
        return cast("tuple[KnobValue, ...]", getattr(self, knob))

    def explored(self) -> dict[str, tuple[KnobValue, ...]]:
        """The knobs with more than one value."""
        every = {name: self.values(name) for name in Setting.model_fields}
        return {name: values for name, values in every.items() if len(values) > 1}

    @property
    def has_max(self) -> bool:
        """Whether the largest batch that fits is asked for."""
        return MAX in self.values("batch_size")

    def default(self, device: str = "cuda", largest: LargestBatch | None = None) -> Setting:
        """The first value of every list; of the strategies the first for several devices on ``device``.

        ``single`` is the one device that every curve has, so it is the default only where it stands alone.
        ``largest`` as for ``grid``; where no batch fits beside the first values, the first that one does.
        """
        listed = self.grid(largest, ["strategy"])
        best = min(
            listed, key=lambda it: (it.strategy == "single", it.fault(device) is not None), default=None
        )
        found = best or self.first_that_fits(largest)
        assert found is not None, "what has no batch that fits has no default"
        return found

    def combinations_of(self, names: Collection[str]) -> Iterator[dict[str, KnobValue]]:
        """Every combination of the knobs ``names``, the others with their first values.

        The last knob changes fastest, the default is the first. Lazily: a grid may have a million.
        """
        values = [self.values(name)[: None if name in names else 1] for name in Setting.model_fields]
        for chosen in itertools.product(*values):
            yield dict(zip(Setting.model_fields, chosen, strict=True))

    def faults(self, device: str) -> list[str]:
        """Why no combination can be on ``device``; empty where one can."""
        found = {setting.fault(device) for setting in self.grid(lambda _: 1, Setting.FAULT_KNOBS)}
        return [] if None in found else sorted(filter(None, found))

    def num_combinations(self, names: Iterable[str] = Setting.model_fields) -> int:
        """Combinations of the knobs ``names``, "max" as one value."""
        return math.prod(len(self.values(name)) for name in names)

    def grid(
        self, largest: LargestBatch | None = None, names: Collection[str] = Setting.model_fields
    ) -> Iterator[Setting]:
        """Every combination of the knobs ``names``, the default first.

        ``largest`` says what "max" stands for, see ``setting_in_numbers``: to be given where it is a value.
        """
        settings = (setting_in_numbers(each, largest) for each in self.combinations_of(names))
        return (setting for setting in settings if setting is not None)

    def first_that_fits(self, largest: LargestBatch | None = None) -> Setting | None:
        """The grid's first setting; None where no batch fits.

        What "max" stands for depends on the knobs that change memory, and on those that may make a fault.
        """
        matter = {"batch_size", *Setting.MEMORY_KNOBS, *Setting.FAULT_KNOBS}
        return next(self.grid(largest, matter), None)


# What "max" stands for beside the other knobs of a setting, whose batch is to be left alone; None: no
# batch fits.
LargestBatch = Callable[[Setting], "int | None"]


def setting_in_numbers(values: Mapping[str, Any], largest: LargestBatch | None) -> Setting | None:
    """The setting of these values, a number in place of "max"; None where no batch fits."""
    if values["batch_size"] != MAX:
        return Setting(**values)
    assert largest is not None, "the largest batch is found before settings are made of it"
    setting = Setting(**{**values, "batch_size": 1})
    batch = largest(setting)
    return None if batch is None else setting.model_copy(update={"batch_size": batch})


def _list_fields() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, field in Setting.model_fields.items():
        item = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        description = field.description
        if name == "batch_size":
            item = PositiveInt | Literal["max"]
            description = f'{description}; "max": the largest that fits in 90% of the memory, found first'
        listed = Field((field.default,), min_length=1, description=description)
        fields[name] = (Listed[item], listed)  # type: ignore[valid-type]
    return fields


class Knobs(create_model("KnobFields", __base__=_Space, **_list_fields())):  # type: ignore[misc]
    """``[knobs]`` of a study: a value or a list of values for each knob of ``Setting``."""
