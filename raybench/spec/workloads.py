"""What a study's ``[workload]`` may say: one model for each workload, told apart by name or factory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from raybench.spec.base import Listed, ListOrValue, Model, PositiveInt, Switch
from raybench.spec.knobs import Setting

VocabularySize = Annotated[int, Field(ge=100, strict=True)]
SequenceLength = Annotated[int, Field(ge=4, strict=True)]
Dropout = Annotated[float, Field(ge=0, lt=1, strict=True)]


class MLPSpec(Model):
    """Linear layers with ReLU between them; mean squared error against fixed random targets."""

    name: Literal["mlp"] = Field(description="mlp")
    input_dim: PositiveInt = Field(1024, description="features of a sample")
    hidden_dim: PositiveInt = Field(1024, description="width of the hidden layers")
    output_dim: PositiveInt = Field(512, description="outputs")
    num_layers: PositiveInt = Field(3, description="Linear layers, ReLU between them")
    input: Literal["synthetic"] = Field("synthetic", description="random samples made once, on the device")


class VisionSpec(Model):
    """A torchvision classifier on images."""

    name: Literal["vision"] = Field(description="vision")
    model: str = Field("resnet18", description="a classifier of torchvision.models, by its name there")
    data_set: Literal["cifar10", "fashion_mnist"] = Field("cifar10", description="the images")
    input: Literal["synthetic", "real"] = Field(
        "synthetic", description="random images of the data set's shape, or the images themselves"
    )
    image_size: PositiveInt | None = Field(None, description="pixels a side; unset: as in the data set")
    num_classes: PositiveInt | None = Field(None, description="classes; unset: as in the data set")
    small_image_stem: Switch | None = Field(
        None,
        description="ResNets: a 3x3 stem of stride 1 without pooling; unset: for images below 64 pixels",
    )
    augment: Switch = Field(True, description="random crop and flip of training images (real input)")
    samples: PositiveInt | None = Field(None, description="training images to use: the first ones")
    test_samples: PositiveInt | None = Field(None, description="the same for the test images")


class Sizes(NamedTuple):
    """What makes a transformer as large as it is."""

    hidden_dim: int
    num_layers: int
    num_heads: int
    feed_forward_dim: int
    vocab_size: int


class _TextModelSpec(Model):
    """What every model on text has: its sizes, its texts and its tokenizer."""

    PUBLISHED: ClassVar[dict[str, Sizes]]  # by model: what a field that is not given stands for

    name: str
    model: str
    hidden_dim: PositiveInt | None = Field(
        None, description="width of the model (d_model); unset: encoder 128, distilbert and gpt2 768"
    )
    num_layers: PositiveInt | None = Field(
        None, description="transformer layers; unset: encoder 2, distilbert 6, gpt2 12"
    )
    num_heads: PositiveInt | None = Field(
        None, description="attention heads of a layer; unset: encoder 4, distilbert and gpt2 12"
    )
    feed_forward_dim: PositiveInt | None = Field(
        None,
        description="width inside a feed-forward block; unset: encoder 256, distilbert 3072, gpt2 "
        "4 x hidden_dim",
    )
    vocab_size: VocabularySize | None = Field(
        None,
        description="of the embedding, and of a WordPiece trained on the data; unset: a named tokenizer's, "
        "else encoder 10000, distilbert 30522, gpt2 50257",
    )
    sequence_length: SequenceLength = Field(128, description="tokens of a sample at most; the rest is cut")
    dropout: Dropout = Field(0.1, description="share of activations set to zero in training")
    data_set: Annotated[str, Field(min_length=1)] = Field(
        "ag_news",
        description="the texts: ag_news, imdb, a name on huggingface.co (org/name, org/name:configuration), "
        "a directory or a CSV, JSON or parquet file (absolute, or under --data)",
    )
    input: Literal["synthetic", "real"] = Field(
        "synthetic", description="random tokens, or those of the data set's texts"
    )
    text_columns: Listed[str] = Field(
        ("text",),
        min_length=1,
        description="of your own texts: columns, joined by a space; if there is no text, that of texts",
    )
    tokenizer: str | None = Field(
        None,
        description="a directory (absolute, or under --data) or a name on huggingface.co; unset: the "
        "checkpoint's, else a WordPiece trained on the training texts",
    )
    samples: PositiveInt | None = Field(None, description="training samples to use, evenly spread")
    test_samples: PositiveInt | None = Field(None, description="test samples to use, evenly spread")

    @property
    def sizes(self) -> Sizes:
        """The sizes given, and the published ones for those that are not."""
        published = self.PUBLISHED[self.model]
        given = {name: getattr(self, name) for name in Sizes._fields}
        return published._replace(**{name: value for name, value in given.items() if value is not None})

    @model_validator(mode="after")
    def _heads_divide(self) -> _TextModelSpec:
        sizes = self.sizes  # TOML has no order: checked when all are known
        if sizes.hidden_dim % sizes.num_heads:
            raise ValueError(
                f"hidden_dim {sizes.hidden_dim} must be divisible by num_heads {sizes.num_heads}"
            )
        return self


class TextSpec(_TextModelSpec):
    """A classifier of texts: a small transformer encoder or DistilBERT."""

    PUBLISHED: ClassVar[dict[str, Sizes]] = {
        "encoder": Sizes(128, 2, 4, 256, 10_000),
        "distilbert": Sizes(768, 6, 12, 3072, 30_522),  # distilbert-base-uncased
    }

    name: Literal["text"] = Field(description="text")
    model: Literal["encoder", "distilbert"] = Field(
        "encoder", description="encoder: embeddings, torch's TransformerEncoder, masked mean, linear head"
    )
    checkpoint: Annotated[str | None, AfterValidator(lambda name: None if name == "random" else name)] = (
        Field(
            None,
            description="weights of distilbert: a directory (absolute, or under --data) or a name on "
            "huggingface.co; random, or unset: random weights",
        )
    )
    padding: Literal["fixed", "longest"] = Field(
        "fixed", description="with real input: pad to sequence_length, or to the longest sample of the batch"
    )
    label_column: str = Field(
        "label", description="whole numbers from 0; if there is no label, that of classes"
    )
    num_classes: Annotated[int, Field(ge=2, strict=True)] | None = Field(
        None, description="classes; unset: as in the data set (synthetic input of your own texts: 2)"
    )

    @property
    def lacks_checkpoint(self) -> bool:
        """Whether its weights are random though there are pretrained ones: training it is no fine-tuning."""
        return self.model != "encoder" and self.checkpoint is None

    @model_validator(mode="after")
    def _checkpoint_fits(self) -> TextSpec:
        if self.checkpoint is None:
            return self
        if self.model == "encoder":
            raise ValueError('checkpoint goes with model = "distilbert" (received "encoder")')
        for name in Sizes._fields:
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is the checkpoint's own (received {getattr(self, name)})")
        return self


class CausalLMSpec(_TextModelSpec):
    """A decoder as GPT-2 (transformers), random weights; cross entropy of the next token."""

    PUBLISHED: ClassVar[dict[str, Sizes]] = {"gpt2": Sizes(768, 12, 12, 3072, 50_257)}

    name: Literal["causal_lm"] = Field(description="causal_lm")
    model: Literal["gpt2"] = Field("gpt2", description="a decoder as GPT-2")
    sequence_length: SequenceLength = Field(
        1024, description="tokens of a sample: the texts one after the other, cut into pieces of this length"
    )
    dropout: Dropout = Field(0.0, description="share of activations set to zero in training")


_IDENTIFIER = r"[^\W\d]\w*"
FunctionPath = Annotated[
    str, Field(pattern=rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}$", strict=True)
]  # package.module:function


class OwnCodeSpec(Model):
    """A workload of one's own: a function is called with the other keys and returns it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    KEY: ClassVar[str]  # the field that names the function

    @property
    def name(self) -> str:
        """What reports call it: the function's own path."""
        return str(getattr(self, self.KEY))

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments for the function."""
        return dict(self.model_extra or {})


class FactorySpec(OwnCodeSpec):
    """``factory`` returns an object with model, data and loss."""

    KEY: ClassVar[str] = "factory"

    factory: FunctionPath = Field(
        description="the function that makes the workload; other keys are its arguments"
    )
    input: Literal["synthetic", "real"] = Field(
        "synthetic", description="batches from the workload's batch, or a data set from its dataset"
    )


class TrainerSpec(OwnCodeSpec):
    """``trainer`` returns a transformers.Trainer that has not started."""

    KEY: ClassVar[str] = "trainer"

    trainer: FunctionPath = Field(
        description="the function that makes the transformers.Trainer; other keys are its arguments"
    )
    input: Literal["real"] = Field("real", description="the Trainer's own data sets")


def _in_a_shell(args: str) -> str:
    try:
        shlex.split(args)
    except ValueError as error:
        raise ValueError(f"arguments quoted as in a shell: {error}") from None
    return args


def _with_other_names(links: tuple[str, ...]) -> tuple[str, ...]:
    if len({link.rstrip("/").rsplit("/", 1)[-1] for link in links}) < len(links):
        raise ValueError("names that differ")
    return links


def _are_ddps(knobs: tuple[str, ...]) -> tuple[str, ...]:
    if {*knobs} - {*ScriptSpec.DDP_KNOBS}:
        raise ValueError(f"of {', '.join(ScriptSpec.DDP_KNOBS)}")
    return knobs


class ScriptSpec(Model):
    """A script that torchrun runs, as it is: each worker runs it, timed at its optimizer's steps."""

    KEY: ClassVar[str] = "script"

    script: str = Field(description="a file, or with is_module the module that python -m runs")
    is_module: Switch = Field(False, description="whether script is a module")
    args: Annotated[str, AfterValidator(_in_a_shell)] = Field(
        "",
        description="its arguments, quoted as in a shell; {batch_size} and every other knob become the "
        "setting's value, {world_size}, {global_batch_size} and {seed} for theirs",
    )
    samples_per_step: PositiveInt | None = Field(
        None,
        description="samples of one device in an optimizer step, accumulated ones too, on any number of "
        "devices; unset: as many as torch's DataLoaders gave, else {batch_size}",
    )
    links: Annotated[Listed[str], AfterValidator(_with_other_names)] = Field(
        (),
        description="files and folders, absolute, next to the script or in the current directory, that the "
        "script finds in the empty one in which it runs",
    )
    ddp_knobs: Annotated[tuple[str, ...], ListOrValue, AfterValidator(_are_ddps)] | None = Field(
        None,
        description="knobs that DistributedDataParallel takes in place of the script's own arguments; unset: "
        "those that the study sets",
    )

    input: ClassVar[str] = "script"  # its own
    #: what ``DistributedDataParallel`` takes, whatever the script gives it
    DDP_KNOBS: ClassVar[tuple[str, ...]] = tuple(
        name for name in Setting.model_fields if name in (*Setting.DDPS_OWN, *Setting.DDP_ONLY)
    )
    #: what else a script's arguments may have, beside the knobs
    OTHERS: ClassVar[tuple[str, ...]] = ("world_size", "global_batch_size", "seed")

    @property
    def name(self) -> str:
        """What reports call it: the file's or module's own name."""
        return self.script.rsplit("/", 1)[-1]

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names in braces in its arguments."""
        return tuple(dict.fromkeys(_PLACEHOLDER.findall(self.args)))

    def words(self, values: Mapping[str, Any]) -> list[str]:
        """Its arguments with the ``values`` of the placeholders."""

        def value_of(found: re.Match[str]) -> str:
            value = values[found[1]]
            return str(value).lower() if isinstance(value, bool) else str(value)

        return [_PLACEHOLDER.sub(value_of, word) for word in shlex.split(self.args)]


_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


class LightningSpec(OwnCodeSpec):
    """``lightning`` returns a LightningModule and its data."""

    KEY: ClassVar[str] = "lightning"

    lightning: FunctionPath = Field(
        description="the function that makes the LightningModule and its DataModule or loaders; other keys "
        "are its arguments"
    )
    input: Literal["real"] = Field("real", description="the data sets of the loaders")


OwnCode = FactorySpec | TrainerSpec | LightningSpec
OWN = ("factory", "trainer", "lightning", "script")  # keys that tell workloads of one's own
CLIPPING = "gradient clipping"  # among what steps leave out, where a workload does nothing after backward


def kind_of(value: Any) -> str | None:
    """Which of ``WORKLOADS`` a ``[workload]`` is: by the key that names a function, else by its name.

    None where it has neither, or several.
    """
    if isinstance(value, Model):
        return getattr(value, "KEY", None) or str(getattr(value, "name", ""))
    keys = [key for key in ("name", *OWN) if key in value] if isinstance(value, Mapping) else []
    if len(keys) != 1:
        return None
    return str(value["name"]) if keys == ["name"] else keys[0]


WorkloadSpec = Annotated[
    Annotated[MLPSpec, Tag("mlp")]
    | Annotated[VisionSpec, Tag("vision")]
    | Annotated[TextSpec, Tag("text")]
    | Annotated[CausalLMSpec, Tag("causal_lm")]
    | Annotated[FactorySpec, Tag("factory")]
    | Annotated[TrainerSpec, Tag("trainer")]
    | Annotated[LightningSpec, Tag("lightning")]
    | Annotated[ScriptSpec, Tag("script")],
    Discriminator(kind_of),
]
WORKLOADS: dict[str, type[Model]] = {
    tag.tag: spec for spec, tag in map(get_args, get_args(get_args(WorkloadSpec)[0]))
}
