"""What is written alike in every framework, since it is torch's own: process, model, loader, a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from raybench.analysis.recommendation import Framework, Recommendation
from raybench.report.code.base import Snippet, call, function, program
from raybench.spec.knobs import KnobValue

AUTOCAST = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}
NO_STATIC_GRAPH = "# static_graph: not with accumulation, whose first pass does not synchronise here"
HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
CHECKPOINTING = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
BLOCK_WORDS = "block_class: the class of your model's repeated blocks."


@dataclass
class Parts:
    """The lines of one framework, and what they need imported."""

    use: Recommendation
    framework: Framework
    torch_version: tuple[int, ...]  # of the measurement; empty: not known
    imports: set[str] = field(default_factory=lambda: {"import torch"})

    @property
    def told(self) -> Mapping[str, KnobValue]:
        """The knobs that the framework must be told of."""
        return self.use.told[self.framework]

    @property
    def strategy(self) -> str:
        """The strategy where it was measured."""
        return "single" if self.use.config.world_size == 1 else self.use.config.setting.strategy

    @property
    def device(self) -> str:
        """The type of torch's device."""
        return self.use.config.device

    @property
    def accumulation(self) -> int:
        """Micro-batches of a step."""
        return self.use.config.setting.gradient_accumulation

    @property
    def dtype(self) -> str | None:
        """What autocast casts to."""
        return AUTOCAST.get(self.use.config.setting.precision)

    @property
    def scales(self) -> bool:
        """Whether gradients are scaled."""
        return self.use.config.setting.precision == "fp16"

    @property
    def is_fp16_on_cpus(self) -> bool:
        """What torch can, and what builds on it does not, or replaces."""
        return self.device == "cpu" and self.scales

    @property
    def needs_blocks(self) -> bool:
        """Whether the model's repeated blocks must be known."""
        return self.strategy == "fsdp" or "activation_checkpointing" in self.told

    @property
    def hook(self) -> str | None:
        """The name of the hook that compresses gradients; imported where it is asked for."""
        asked = self.told.get("gradient_compression")
        if asked is None:
            return None
        self.imports.add(f"from {HOOKS} import {asked}_compress_hook")
        return f"{asked}_compress_hook"

    def process_lines(self, *, tf32_too: bool = True) -> list[str]:
        """What holds for the whole process."""
        lines = []
        if self.use.threads is not None:
            lines.append(f"torch.set_num_threads({self.use.threads})")
        if tf32_too and "precision" in self.told and self.device == "cuda":
            tf32 = self.told["precision"] == "tf32"
            level = "high" if tf32 else "highest"
            lines.append(f'torch.set_float32_matmul_precision("{level}")')
            lines.append(f"torch.backends.cudnn.allow_tf32 = {tf32}")
        if "cudnn_benchmark" in self.told:
            lines.append("torch.backends.cudnn.benchmark = True")
        return lines

    def model_lines(self, *, compiled: bool = True, checkpointed: bool = True) -> list[str]:
        """What is done to the model before it is wrapped."""
        lines = []
        if checkpointed and "activation_checkpointing" in self.told:
            self.imports.add(f"from {CHECKPOINTING} import apply_activation_checkpointing")
            is_block = "check_fn=lambda module: isinstance(module, block_class)"
            lines += call("apply_activation_checkpointing", ["model", is_block], {})
        if "channels_last" in self.told:
            if self.strategy != "fsdp":  # which takes contiguous weights only
                lines.append("model = model.to(memory_format=torch.channels_last)")
            lines.append("# and in your loss: images.to(device, memory_format=torch.channels_last)")
        if compiled and "compile" in self.told and self.strategy != "fsdp":
            lines.append("model.compile(dynamic=False)")
        return lines

    @property
    def static_graph_fails(self) -> bool:
        """Whether a framework that begins with a pass that does not synchronise runs into DDP's assertion."""
        return self.accumulation > 1 and "static_graph" in self.told

    def ddp_arguments(self, *, renamed: bool = True) -> dict[str, str]:
        """Of DistributedDataParallel; ``renamed``: broadcast_buffers by its newer name where torch has it."""
        passed = ("bucket_cap_mb", "static_graph", "find_unused_parameters", "gradient_as_bucket_view")
        arguments = {name: in_python(self.told[name]) for name in passed if name in self.told}
        if "broadcast_buffers" in self.told:
            newer = renamed and self.torch_version >= (2, 14)
            name = "forward_sync_buffers" if newer else "broadcast_buffers"
            arguments[name] = "False"
        return arguments

    def loader_arguments(self) -> dict[str, str]:
        """Of DataLoader, but for how the samples are split over the ranks."""
        batch = self.use.config.batch_size
        if self.strategy == "dp":  # one process feeds all devices
            batch *= self.use.config.world_size
        arguments = {"batch_size": str(batch)}
        named = {"workers": "num_workers"}
        for name in ("workers", "persistent_workers", "pin_memory"):
            if name in self.told:
                arguments[named.get(name, name)] = str(self.told[name])
        return arguments | {"drop_last": "True"}

    def loader_lines(self, *, sampled: bool) -> list[str]:
        """make_loader; ``sampled``: each rank takes its own share of the samples."""
        self.imports.add("from torch.utils.data import DataLoader")
        split = {"shuffle": "True"}
        if sampled and self.strategy in ("ddp", "fsdp"):
            self.imports.add("from torch.utils.data import DistributedSampler")
            split = {"sampler": "DistributedSampler(train_set)"}
        lines = call("return DataLoader", ["train_set"], split | self.loader_arguments())
        return function("make_loader(train_set)", "Batches of one device.", lines)

    def shard_lines(self) -> list[str]:
        """fully_shard, block by block, then what is around them."""
        self.imports.add("from torch.distributed.fsdp import fully_shard")
        setting = self.use.config.setting
        named, outer = {"reshard_after_forward": str(setting.fsdp_reshard)}, ""
        lines = ["# the same weights on every rank first: seed alike, or load the same checkpoint"]
        if self.dtype:
            self.imports.add("from torch.distributed.fsdp import MixedPrecisionPolicy")
            types = {"param_dtype": self.dtype, "reduce_dtype": "torch.float32"}
            lines += call("policy = MixedPrecisionPolicy", [], types)
            lines += call("outer = MixedPrecisionPolicy", [], types | {"output_dtype": "torch.float32"})
            lines.append(
                "# a model with batch normalisation: no mp_policy, and torch.autocast around your loss"
            )
            named, outer = named | {"mp_policy": "policy"}, "outer"
        lines.append("for block in [each for each in model.modules() if isinstance(each, block_class)]:")
        if "compile" in self.told:
            lines.append("    block.forward = torch.compile(block.forward, dynamic=False)")
        lines += [f"    {line}" for line in call("fully_shard", ["block"], named, depth=2)]
        around = named | ({"mp_policy": outer} if outer else {})
        return [*lines, *call("fully_shard", ["model"], around)]

    def epoch_lines(self) -> list[str]:
        """train_epoch of a plain loop."""
        scaler = ", scaler" if self.scales else ""
        head = f"train_epoch(model, optimizer, loader, loss_of{scaler})"
        return function(head, "One epoch.", self._epoch_body())

    def _epoch_body(self) -> list[str]:
        k, wrapped = self.accumulation, self.strategy == "ddp"
        cast = self.dtype if self.strategy != "fsdp" else None
        weight = f" / {k}" if k > 1 else ""
        body = [f"loss = loss_of(model, batch){weight}"]
        if cast:
            body = [f'with torch.autocast("{self.device}", dtype={cast}):', *_indented(body)]
        body.append("scaler.scale(loss).backward()" if self.scales else "loss.backward()")
        update = ["scaler.step(optimizer)", "scaler.update()"] if self.scales else ["optimizer.step()"]
        update.append("optimizer.zero_grad(set_to_none=True)")
        if k == 1:
            return ["for batch in loader:", *_indented([*body, *update])]
        inner = [f"last = number % {k} == 0"]
        if wrapped:
            self.imports.add("from contextlib import nullcontext")
            whole = "last"
            if "static_graph" in self.told:  # DDP asserts where the first step does not synchronise
                inner.append("# static_graph: the graph is learnt in a step that synchronises")
                whole = f"last or number < {k}"
            inner += [f"with nullcontext() if {whole} else model.no_sync():", *_indented(body)]
        elif self.strategy == "fsdp":
            inner += ["model.set_requires_gradient_sync(last)", *body]
        else:
            inner += body
        inner += ["if last:", *_indented(update)]
        rest = "optimizer.zero_grad(set_to_none=True)  # of micro-batches that fill no step"
        return ["for number, batch in enumerate(loader, start=1):", *_indented(inner), rest]

    def snippet(
        self, title: str, comments: Iterable[str], body: Iterable[str], *, has_blocks: bool
    ) -> Snippet:
        """``body`` under ``comments`` and what was imported; ``has_blocks``: it takes block_class."""
        blocks = [BLOCK_WORDS] if has_blocks else []
        return Snippet(title, "python", program([*comments, *blocks], self.imports, body))


def in_python(value: KnobValue) -> str:
    """A knob's value as an argument: 50 for 50.0."""
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
