"""The last section of a report: what to use, as a loop to paste and as arguments of four frameworks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raybench.analysis.findings.verifications import Verified
from raybench.analysis.labels import devices_words
from raybench.analysis.recommendation import Basis, Recommendation
from raybench.analysis.results import StudyResults
from raybench.machine.host import KEPT_BY_MALLOC, MALLOC_PREFIX
from raybench.records.requests import Configuration
from raybench.report.format import percent, sentence
from raybench.report.sections.configurations import measured_words
from raybench.report.sections.training import changed_words
from raybench.report.table import NONE, Column, Table, make_table
from raybench.spec.knobs import KnobValue
from raybench.spec.workloads import ScriptSpec, TrainerSpec

AS_CODE = " as code, at the end of the report"
HINT_WIDTH = 80  # columns of a terminal
AUTOCAST = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}
FRAMEWORKS = ("Ray Train", "Lightning", "Accelerate", "transformers")

# What torch does where an argument is left out: the signatures of DistributedDataParallel and DataLoader, 2.0
# to 2.14. The knobs that are not here have no such value: the batch, the strategy, the number of threads.
TORCH_DEFAULTS: Mapping[str, KnobValue] = {
    "bucket_cap_mb": "default",
    "precision": "default",
    "gradient_accumulation": 1,
    "gradient_compression": "none",
    "gradient_as_bucket_view": False,
    "static_graph": False,
    "find_unused_parameters": False,
    "broadcast_buffers": True,
    "batched_grad_copy": False,
    "skip_all_reduce_unused_params": False,
    "activation_checkpointing": False,
    "compile": False,
    "channels_last": False,
    "cudnn_benchmark": False,
    "optimizer_kernels": "default",
    "workers": 0,
    "persistent_workers": False,
    "pin_memory": False,
}
# Of TrainingArguments, 4.30 to 5.23; whether it looks for unused parameters depends on the model.
TRANSFORMERS_DEFAULTS: Mapping[str, KnobValue | None] = {
    **TORCH_DEFAULTS, "find_unused_parameters": None, "pin_memory": True
}  # fmt: skip
# how many of FRAMEWORKS hand them on to DDP, the first ones
DDP_KNOBS = {
    "bucket_cap_mb": 4, "static_graph": 4, "find_unused_parameters": 4, "gradient_as_bucket_view": 3,
    "broadcast_buffers": 4, "batched_grad_copy": 2, "skip_all_reduce_unused_params": 2,
}  # fmt: skip
LOADER_KNOBS = {
    "workers": "num_workers",
    "persistent_workers": "persistent_workers",
    "pin_memory": "pin_memory",
}
GPU_KNOBS = ("cudnn_benchmark", "pin_memory")


def _torch(argument: str) -> tuple[str, ...]:
    """What is torch's own in all but transformers."""
    return (argument,) * 3


def _ddp(name: str, frameworks: int) -> tuple[str, ...]:
    every = (
        f"prepare_model(parallel_strategy_kwargs={{'{name}': VALUE}})",
        f"DDPStrategy({name}=VALUE)",
        f"DistributedDataParallelKwargs({name}=VALUE)",
        f"TrainingArguments(ddp_{name}=VALUE)",
    )
    return tuple(each if place < frameworks else "" for place, each in enumerate(every))


def _loader(name: str) -> tuple[str, ...]:
    return (*_torch(f"DataLoader({name}=VALUE)"), f"TrainingArguments(dataloader_{name}=VALUE)")


# By knob, or by knob and value: what it is called in each of FRAMEWORKS; empty: there is no such argument.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "batch_size": (
        *_torch("DataLoader(batch_size=VALUE)"),
        "TrainingArguments(per_device_train_batch_size=VALUE)",
    ),
    "world_size": ("ScalingConfig(num_workers=VALUE)", "Trainer(devices=VALUE)", "", ""),
    "strategy=fsdp": (
        "fully_shard(model)",
        "ModelParallelStrategy(data_parallel_size='auto', tensor_parallel_size=1)",
        "FullyShardedDataParallelPlugin(fsdp_version=2)",
        "TrainingArguments(fsdp=True, fsdp_config={'version': 2})",
    ),
    "fsdp_reshard": (
        "fully_shard(model, reshard_after_forward=VALUE)",
        "fully_shard(model, reshard_after_forward=VALUE)",
        "FullyShardedDataParallelPlugin(reshard_after_forward=VALUE)",
        "TrainingArguments(fsdp_config={'reshard_after_forward': VALUE})",
    ),
    "precision=bf16": (
        "torch.autocast(device, dtype=torch.bfloat16)",
        "Trainer(precision='bf16-mixed')",
        "Accelerator(mixed_precision='bf16')",
        "TrainingArguments(bf16=True)",
    ),
    "precision=fp16": (
        "torch.autocast(device, dtype=torch.float16)",
        "Trainer(precision='16-mixed')",
        "Accelerator(mixed_precision='fp16')",
        "TrainingArguments(fp16=True)",
    ),
    "precision=tf32": (
        *_torch("torch.set_float32_matmul_precision('high')"),
        "TrainingArguments(tf32=True)",
    ),
    "precision=fp32": (
        *_torch("torch.set_float32_matmul_precision('highest')"),
        "TrainingArguments(tf32=False)",
    ),
    "gradient_accumulation": (
        "model.no_sync()",
        "Trainer(accumulate_grad_batches=VALUE)",
        "Accelerator(gradient_accumulation_steps=VALUE)",
        "TrainingArguments(gradient_accumulation_steps=VALUE)",
    ),
    **{
        f"gradient_compression={kind}": (
            f"model.register_comm_hook(None, {kind}_compress_hook)",
            f"DDPStrategy(ddp_comm_hook={kind}_compress_hook)",
            f"DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.{kind.upper()})",
            "",
        )
        for kind in AUTOCAST
    },
    **{name: _ddp(name, frameworks) for name, frameworks in DDP_KNOBS.items()},
    **{
        f"optimizer_kernels={kernels}": (*_torch(f"torch.optim.AdamW(..., {kernels}=True)"), transformers)
        for kernels, transformers in (
            ("foreach", "TrainingArguments(optim='adamw_torch')"),
            ("fused", "TrainingArguments(optim='adamw_torch_fused')"),
        )
    },
    "activation_checkpointing": (
        *_torch("apply_activation_checkpointing(model)"),
        "TrainingArguments(gradient_checkpointing=VALUE)",
    ),
    "compile": (*_torch("model.compile(dynamic=False)"), "TrainingArguments(torch_compile=VALUE)"),
    "channels_last": ("model.to(memory_format=torch.channels_last)",) * 4,
    "cudnn_benchmark": (
        "torch.backends.cudnn.benchmark = True",
        "Trainer(benchmark=VALUE)",
        *("torch.backends.cudnn.benchmark = True",) * 2,
    ),
    "num_threads": ("torch.set_num_threads(VALUE)",) * 4,
    **{knob: _loader(name) for knob, name in LOADER_KNOBS.items()},
}  # fmt: skip


@dataclass(frozen=True)
class Snippet:
    """A piece of code."""

    title: str
    language: str  # as a fence of Markdown names it
    text: str  # without a line break at its end


@dataclass(frozen=True)
class UseIt:
    """What to use, and why it."""

    sentences: tuple[str, ...]
    snippets: tuple[Snippet, ...]
    arguments: Table


def use_it(results: StudyResults, environment: Mapping[str, Any]) -> UseIt | None:
    """The recommended setting as code; None where the study recommends none.

    ``environment``: what environment.json holds; the names of arguments are those of its torch.
    """
    use = results.recommendation
    if use is None:
        return None
    snippets = [variables_snippet(use)]
    if not isinstance(use.config.workload, ScriptSpec):
        snippets.insert(0, loop_snippet(use, torch_version(environment)))
    script, table = use.config.workload, arguments_table(use)
    if isinstance(script, ScriptSpec):  # of which the study knows what it sets
        known = script.ddp_knobs or ()
        table = replace(table, rows=tuple(row for row in table.rows if row[0].split(" = ")[0] in known))
    return UseIt(tuple(_sentences(results, use)), tuple(snippets), table)


def torch_version(environment: Mapping[str, Any]) -> tuple[int, ...]:
    """Major and minor number of the torch that was measured; empty where it is not known."""
    version = str((environment.get("packages") or {}).get("torch", ""))
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def loop_snippet(use: Recommendation, version: tuple[int, ...] = ()) -> Snippet:
    """A plain loop of torch; ``version``: torch's."""
    import jinja2

    config, knobs, strategy = use.config, set_knobs(use.config), _strategy(use)
    setting = config.setting
    ddp = {name: in_python(knobs[name]) for name in DDP_KNOBS if name in knobs}
    if version >= (2, 14) and "broadcast_buffers" in ddp:
        ddp["forward_sync_buffers"] = ddp.pop("broadcast_buffers")
    compression = knobs.get("gradient_compression")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    text = environment.get_template("loop.py.j2").render(
        start=start_words(use),
        uneven=uneven_words(use),
        blocks=", block_class" if strategy == "fsdp" or "activation_checkpointing" in knobs else "",
        several=strategy in ("ddp", "fsdp"),
        strategy=strategy,
        device=config.device,
        cuda=config.device == "cuda",
        knobs=knobs,
        ddp=ddp,
        loader=LOADER_KNOBS,
        hook=f"{compression}_compress_hook" if compression else "",
        threads=use.threads,
        dtype=AUTOCAST.get(setting.precision),
        scales=setting.precision == "fp16",
        accumulation=setting.gradient_accumulation,
        reshard=setting.fsdp_reshard,
        size=config.world_size,
        batch_size=config.batch_size
        * (config.world_size if strategy == "dp" else 1),  # one process feeds all
    )
    return Snippet("A plain loop", "python", text.rstrip())


def set_knobs(
    config: Configuration, defaults: Mapping[str, KnobValue | None] = TORCH_DEFAULTS
) -> dict[str, KnobValue]:
    """The knobs of a configuration that have an effect there and differ from ``defaults``.

    What can have no effect where the setting was measured (the loader's knobs without a loader, cuDNN on
    CPUs) is left out.
    """
    setting = config.setting.at(config.world_size)
    without = set(setting.indifferent(config.world_size))
    if setting.strategy != "ddp":
        without.update(setting.DDP_ONLY)
    if config.device == "cpu":
        without.update(GPU_KNOBS)
    if config.workload.input == "synthetic":
        without.update(LOADER_KNOBS)
    elif setting.workers == 0:
        without.add("persistent_workers")
    values = {name: value for name, value in setting.model_dump().items() if name in defaults}
    if config.device == "cpu" and values["precision"] == "fp32":
        values["precision"] = "default"  # what fp32 switches off exists on GPUs only
    return {name: value for name, value in values.items() if name not in without and value != defaults[name]}


def arguments_table(use: Recommendation) -> Table:
    """What each knob of the recommended setting is called in four frameworks."""
    config, strategy = use.config, _strategy(use)
    own, transformers = set_knobs(config), set_knobs(config, TRANSFORMERS_DEFAULTS)
    if strategy != "ddp":
        transformers.pop("find_unused_parameters", None)
    shown: dict[str, KnobValue] = {"batch_size": config.batch_size, "world_size": config.world_size}
    if strategy in ("fsdp", "dp"):
        shown["strategy"] = strategy
    if strategy == "fsdp":
        shown["fsdp_reshard"] = config.setting.fsdp_reshard
    if use.threads is not None:
        shown["num_threads"] = use.threads
    shown |= transformers | own

    def cell(framework: int) -> Column[str]:
        def words(knob: str) -> str:
            value = shown[knob]
            set_by = transformers if framework == len(FRAMEWORKS) - 1 else own
            if knob in TORCH_DEFAULTS and knob not in set_by:
                return ""  # the framework's own default
            if _is_refused(use, framework, knob):
                return NONE
            names = ARGUMENTS.get(f"{knob}={value}") or ARGUMENTS.get(knob)
            return (names[framework].replace("VALUE", in_python(value)) if names else "") or NONE

        return Column(FRAMEWORKS[framework], words)

    knobs = Column[str]("knob", lambda knob: f"{knob} = {in_python(shown[knob])}")
    caption = (
        f"What each framework calls the setting's arguments. {NONE}: it has none, or fails with it. Empty: "
        "its own default."
    )
    columns = [knobs, *(cell(place) for place in range(len(FRAMEWORKS)))]
    return make_table("As arguments", " ".join([caption, *_remarks(use, own)]), columns, list(shown))


def _is_refused(use: Recommendation, framework: int, knob: str) -> bool:
    """Whether a framework that has the argument fails with it, or takes something else."""
    setting, on_cpus = use.config.setting, use.config.device == "cpu"
    refused = {
        "static_graph": setting.gradient_accumulation > 1,
        "precision": on_cpus and setting.precision == "fp16",
        "gradient_compression": on_cpus and FRAMEWORKS[framework] == "Lightning",
    }
    return FRAMEWORKS[framework] != "Ray Train" and refused.get(knob, False)


def _remarks(use: Recommendation, knobs: Mapping[str, KnobValue]) -> Iterator[str]:
    """What an argument does in a framework that its name does not say."""
    setting = use.config.setting
    if "static_graph" in knobs and setting.gradient_accumulation > 1:
        yield "static_graph asserts where the first pass does not synchronise, as with accumulation there."
    if knobs.get("bucket_cap_mb") == 25:
        yield (
            "Accelerate and transformers take bucket_cap_mb=25 as DDP's own default, whose first bucket is 1 "
            "MiB; Accelerate passes 25.001 on."
        )
    if use.config.world_size % use.nodes:
        yield f"Lightning wants equally many devices on each of the {use.nodes} nodes."
    elif use.nodes > 1:
        yield f"On {use.nodes} nodes, Lightning takes num_nodes={use.nodes} and the devices of one node."
    if isinstance(use.config.workload, ScriptSpec | TrainerSpec):
        return  # which clip as they do
    yield "Trainer of transformers clips gradients unless max_grad_norm=0; the study did not."


def in_python(value: KnobValue) -> str:
    """A knob's value as an argument: 50 for 50.0."""
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _strategy(use: Recommendation) -> str:
    return "single" if use.config.world_size == 1 else use.config.setting.strategy


def uneven_words(use: Recommendation) -> list[str]:
    """What N of ``start_words`` stands for, where it is there."""
    size = use.config.world_size
    if size % use.nodes == 0 or start_words(use) == "python":
        return []
    return [f"N: the number of devices on this node, {size} on all {use.nodes} nodes together."]


def start_words(use: Recommendation) -> str:
    """The command before the script's name."""
    size = use.config.world_size
    is_script = isinstance(use.config.workload, ScriptSpec)  # which makes its process group on one device too
    if _strategy(use) in ("single", "dp") and not is_script:
        return "python"
    if use.nodes == 1:
        return f"torchrun --nproc-per-node={size}"
    number = "N" if size % use.nodes else size // use.nodes
    return (
        f"torchrun --nnodes={use.nodes} --nproc-per-node={number} --rdzv-backend=c10d "
        "--rdzv-endpoint=HOST:PORT"
    )


def variables_snippet(use: Recommendation) -> Snippet:
    """Environment variables, before the processes start."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(use.config.environment.items())]
    if use.threads is not None and "OMP_NUM_THREADS" not in use.config.environment:
        lines.append(f"export OMP_NUM_THREADS={use.threads}")
    sets_malloc = any(name.startswith(MALLOC_PREFIX) for name in use.config.environment)
    script, called = use.config.workload, "train.py"
    if isinstance(script, ScriptSpec):
        first = ["-m", script.script] if script.is_module else [script.script]
        called = shlex.join([*first, *script.words(use.config.script_values())])
    elif use.config.device == "cpu" and not sets_malloc:  # as the workers had it
        lines += [f"export {name}={value}" for name, (_, value) in KEPT_BY_MALLOC.items()]
    lines = lines or ["# none: the study set no variables"]
    lines += [*(f"# {words}" for words in uneven_words(use)), f"{start_words(use)} {called}"]
    return Snippet("Environment variables", "sh", "\n".join(lines))


def hint(results: StudyResults) -> str:
    """A line for the terminal; empty where there is no code."""
    use = results.recommendation
    if use is None:
        return ""
    what = "the default" if use.is_default else use.label
    words = f"Use it: {what}{AS_CODE}"
    return words if len(words) <= HINT_WIDTH else f"Use it: the setting above{AS_CODE}"


def _sentences(results: StudyResults, use: Recommendation) -> list[str]:
    gain = f" ({percent(use.gain.gain, sign=True)} samples/s)" if use.gain else ""
    words = {
        Basis.BETTER: f"{sentence(use.label)} is faster than the default{gain}.",
        Basis.VERIFIED: f"What the diagnosis proposes, {use.label}, tested against the default{gain}.",
        Basis.CHOSEN: f"The chosen setting, {results.best_label}{gain}.",
        Basis.AS_GOOD: f"This is the default's code: the best, {results.best_label}, is as good{gain}.",
        Basis.UNKNOWN: "This is the default's code: whether the best, "
        f"{results.best_label}, is faster is not known yet{gain}.",
        Basis.ALONE: f"The best, {results.best_label}; the default was not measured.",
        Basis.DEFAULT_IS_BEST: "This is the default's code: nothing that was tried is better.",
        Basis.NO_CHOICE: "Nothing else was measured: this is the code of what was.",
    }
    told = [words[use.basis], *_also_confirmed(results, use)]
    if use.simpler_than is not None:
        told.append(
            f"{sentence(results.best_label)} is not shown to be faster: what else it changes is left out."
        )
    told += _one_device_words(results, use)
    if use.default_global_batch_size is not None:
        told.append(
            f"A step takes {use.config.global_batch_size:,} samples in place of "
            f"{use.default_global_batch_size:,}: that is a choice about speed, and the learning rate may "
            "have to follow."
        )
    told += _as_trained(results, use)
    if isinstance(use.config.workload, ScriptSpec):
        told.append("Everything else is as in the script.")
    else:
        told.append(
            "Arguments that are left out are at the framework's own default, which is what was measured."
        )
    return told


def _one_device_words(results: StudyResults, use: Recommendation) -> list[str]:
    """Where the costs say that one device is enough: the code below is for several all the same."""
    advice = results.device_advice
    speedup = results.scaling(advice.record).speedup if advice else None
    if use.config.world_size == 1 or speedup is None or speedup.low > 1:
        return []
    return [
        f"One device is advised above, as {devices_words(use.config.world_size)} are not measurably faster: "
        "the code is for those who use them all the same."
    ]


def _as_trained(results: StudyResults, use: Recommendation) -> list[str]:
    """What training says of a setting that learns as the recommended one, where it was trained."""
    size, changed = use.config.world_size, results.training.changed if results.training else ()
    key = use.config.setting.learning_key(size)
    like = (
        each
        for each in changed
        if each.group.world_size == size and each.group.config.setting.learning_key(size) == key
    )
    return [f"Trained: {changed_words(each)}." for each in like]


def _also_confirmed(results: StudyResults, use: Recommendation) -> list[str]:
    """The confirmed changes of the diagnosis that this code has not."""
    others = [
        f"{each.label} ({measured_words(each)} samples/s)"
        for each in results.verifications
        if each.verdict is Verified.CONFIRMED and not use.config.has(each.proposal.change)
    ]
    return (
        [f"Not in this code, and confirmed alone against the default: {'; '.join(others)}."] if others else []
    )
