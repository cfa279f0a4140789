"""What a study's ``[workload]`` may say: one model for each workload, told apart by name or factory."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator

from raybench.spec.base import Model, PositiveInt, Switch


class MLPSpec(Model):
    """Linear layers with ReLU between them; mean squared error against fixed random targets."""

    name: Literal["mlp"] = Field(description="mlp")
    input_dim: PositiveInt = Field(1024, description="features of a sample")
    hidden_dim: PositiveInt = Field(1024, description="width of the hidden layers")
    output_dim: PositiveInt = Field(512, description="outputs")
    num_layers: PositiveInt = Field(3, description="Linear layers")
    input: Literal["synthetic"] = Field("synthetic", description="random samples made once, on the device")


class VisionSpec(Model):
    """A torchvision classifier on images."""

    name: Literal["vision"] = Field(description="vision")
    model: str = Field("resnet18", description="a classifier of torchvision.models, by its name there")
    data_set: Literal["cifar10", "fashion_mnist", "image_folder"] = Field(
        "cifar10", description="the images; image_folder: DIR/train/CLASS/*.png and DIR/test/CLASS/*.png"
    )
    input: Literal["synthetic", "real"] = Field(
        "synthetic", description="random images of the data set's shape, or the images themselves"
    )
    image_size: PositiveInt | None = Field(
        None, description="pixels a side; none: as in the data set (image_folder: 224)"
    )
    num_classes: PositiveInt | None = Field(None, description="none: as in the data set")
    small_image_stem: Switch | None = Field(
        None,
        description="ResNets: a 3x3 stem of stride 1, no pooling; none: for images below 64 pixels",
    )
    augment: Switch = Field(True, description="random crop and flip of training images (real input)")
    samples: PositiveInt | None = Field(
        None, description="use only so many training images: the first, of folders evenly spread ones"
    )
    test_samples: PositiveInt | None = Field(None, description="the same for the test images")


class FactorySpec(Model):
    """A workload of one's own: ``factory`` is called with the other keys and returns it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    factory: str = Field(description='"package.module:function"')
    input: Literal["synthetic", "real"] = Field(
        "synthetic", description="batch(size, generator) or dataset(split) of the workload"
    )

    @field_validator("factory")
    @classmethod
    def _two_parts(cls, value: str) -> str:
        module, colon, function = value.partition(":")
        parts = [*module.split("."), function]
        if not colon or not all(part.isidentifier() for part in parts):
            raise ValueError('"package.module:function"')
        return value

    @property
    def name(self) -> str:
        """What reports call it: the factory's own path."""
        return self.factory

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments for the factory."""
        return dict(self.model_extra or {})


def _kind(value: Any) -> str | None:
    if isinstance(value, Model):
        return "factory" if isinstance(value, FactorySpec) else str(getattr(value, "name", ""))
    if not isinstance(value, dict):
        return None
    name = value.get("name")
    return "factory" if "factory" in value else name if isinstance(name, str) else None


WorkloadSpec = Annotated[
    Annotated[MLPSpec, Tag("mlp")]
    | Annotated[VisionSpec, Tag("vision")]
    | Annotated[FactorySpec, Tag("factory")],
    Discriminator(_kind),
]
WORKLOADS: dict[str, type[Model]] = {"mlp": MLPSpec, "vision": VisionSpec, "factory": FactorySpec}
NOT_YET_WORKLOADS = ("text", "causal_lm")
