"""The last section of a report: what to use, as a loop to paste and as arguments of four frameworks."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raybench.analysis.labels import devices_of
from raybench.analysis.recommendation import Recommendation
from raybench.analysis.results import StudyResults
from raybench.machine.host import KEPT_BY_MALLOC, sets_malloc
from raybench.records.requests import Configuration
from raybench.report.answer import to_use
from raybench.report.format import percent
from raybench.report.pages import template
from raybench.report.table import NONE, Column, Table
from raybench.spec.knobs import KnobValue, Setting, bucket_sizes_mb
from raybench.spec.workloads import CLIPPING, ScriptSpec, TrainerSpec

AUTOCAST = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}

# What torch does where an argument is left out: raybench's own defaults but for three. The batch, the
# strategy and the number of threads have no such value.
_WITHOUT = ("strategy", "batch_size", "fsdp_reshard", "num_threads")
TORCH_DEFAULTS: Mapping[str, KnobValue] = {
    **{name: each.default for name, each in Setting.model_fields.items() if name not in _WITHOUT},
    "precision": "default",
    "persistent_workers": False,
    "pin_memory": False,
}
DDP_KNOBS = tuple(name for name in ScriptSpec.DDP_KNOBS if name != "gradient_compression")  # a hook
# By knob, or by knob and value: what it is called in each of FRAMEWORKS; empty: there is no such argument.
with (Path(__file__).parent / "arguments.csv").open(newline="", encoding="utf-8") as _file:
    ARGUMENTS = {knob: tuple(names) for knob, *names in csv.reader(_file)}
FRAMEWORKS = ARGUMENTS.pop("knob")
# Ray Train runs a plain loop of torch: so are a DataLoader's arguments and torch's switches called there.
PLAIN = {knob: names[0] for knob, names in ARGUMENTS.items() if knob != "batch_size"}
LOADER_KNOBS = {
    knob: found[1] for knob, name in PLAIN.items() if (found := re.match(r"DataLoader\((\w+)=VALUE", name))
}


@dataclass(frozen=True)
class UseIt:
    """What to use."""

    sentences: tuple[str, ...]
    loop: str  # a plain loop of torch; empty of a script, which has its own
    variables: str  # environment variables, before the processes start
    arguments: Table


def use_it(results: StudyResults) -> UseIt | None:
    """The recommended setting as code; None where the study recommends none."""
    use = to_use(results)
    if use is None:
        return None
    left_out = next((each.steps.left_out for each in results.measured if each.steps), ())
    clips = bool(left_out) and CLIPPING not in left_out
    loop = "" if isinstance(use.config.workload, ScriptSpec) else plain_loop(use, clips=clips)
    return UseIt(tuple(_sentences(results, use)), loop, variables_of(use), arguments_table(use, clips=clips))


def plain_loop(use: Recommendation, *, clips: bool = False) -> str:
    """A plain loop of torch; ``clips``: the workload does something after each backward pass."""
    config, knobs, strategy = use.config, set_knobs(use.config), _strategy(use)
    compression = knobs.get("gradient_compression")
    text = template("loop.py.j2").render(
        use=use,
        clips=clips,
        start=start_words(use),
        blocks=", block_class" if strategy == "fsdp" or "activation_checkpointing" in knobs else "",
        several=strategy in ("ddp", "fsdp"),
        strategy=strategy,
        cuda=config.device == "cuda",
        knobs=knobs,
        ddp=dict(argument(name, knobs[name]) for name in DDP_KNOBS if name in knobs),
        loader=LOADER_KNOBS,
        plain=PLAIN,
        hook=f"{compression}_compress_hook" if compression else "",
        dtype=AUTOCAST.get(config.setting.precision),
        scales=config.setting.precision == "fp16",
        batch_size=config.batch_size
        * (config.world_size if strategy == "dp" else 1),  # one process feeds all
    )
    return text.rstrip()


def set_knobs(config: Configuration) -> dict[str, KnobValue]:
    """The knobs of a configuration that have an effect there and differ from torch's own values.

    What can have no effect where the setting was measured (the loader's knobs without a loader, cuDNN on
    CPUs) is left out.
    """
    setting = config.setting.at(config.world_size)
    without = set(Setting.GPU_ONLY) if config.device == "cpu" else set()
    if config.workload.input == "synthetic":
        without.update(LOADER_KNOBS)
    elif setting.workers == 0:
        without.add("persistent_workers")
    values = {name: value for name, value in setting.model_dump().items() if name in TORCH_DEFAULTS}
    if config.device == "cpu" and values["precision"] == "fp32":
        values["precision"] = "default"  # what fp32 switches off exists on GPUs only
    return {
        name: value for name, value in values.items() if name not in without and value != TORCH_DEFAULTS[name]
    }


def arguments_table(use: Recommendation, *, clips: bool = False) -> Table:
    """What each knob of the recommended setting is called in four frameworks.

    Of a script those that the study knows it sets. ``clips`` as for ``plain_loop``.
    """
    config, script = use.config, use.config.workload
    shown: dict[str, KnobValue] = {"batch_size": config.batch_size, "world_size": config.world_size}
    if _strategy(use) == "fsdp":
        shown |= {"strategy": "fsdp", "fsdp_reshard": config.setting.fsdp_reshard}
    shown |= set_knobs(config)
    shown.pop("channels_last", None)  # of torch in all of them, as the loop has it
    if isinstance(script, ScriptSpec):
        shown = {knob: value for knob, value in shown.items() if knob in (script.ddp_knobs or ())}

    def row(knob: str) -> tuple[str, ...]:
        name, value = argument(knob, shown[knob])
        keys = f"{name} with {_strategy(use)}", f"{knob}={shown[knob]}", name
        names = next((ARGUMENTS[key] for key in keys if key in ARGUMENTS), ("",) * len(FRAMEWORKS))
        said = (each.replace("VALUE", value).replace("WORLD", str(config.world_size)) for each in names)
        return f"{name} = {value}", *(each or NONE for each in said)

    columns = tuple(Column[str](name) for name in ("knob", *FRAMEWORKS))
    caption = f"What is left out is at its default, as measured. {NONE}: no such argument."
    caption += _remarks(use, clips=clips)
    return Table("As arguments", caption, columns, tuple(map(row, shown)))


def _remarks(use: Recommendation, *, clips: bool) -> str:
    """What the frameworks do that the names of arguments do not say."""
    config, setting = use.config, use.config.setting
    is_sharded, on_cpus = _strategy(use) == "fsdp", config.device == "cpu"
    is_late = setting.static_graph and setting.gradient_accumulation > 1
    remarks = {
        f"On {use.nodes} nodes Lightning takes the devices of one, and num_nodes={use.nodes}.": use.nodes > 1,
        "static_graph fails where the first pass does not synchronise, as with accumulation there.": is_late,
        "fully_shard takes each block, then the model: with Lightning in configure_model.": is_sharded,
        "Lightning does not shard with fp16.": is_sharded and setting.precision == "fp16",
        "Accelerate and transformers shard on GPUs only.": is_sharded and on_cpus,
        "Lightning registers hooks on GPUs only.": on_cpus and setting.gradient_compression != "none",
    }
    words = "".join(f" {each}" for each, holds in remarks.items() if holds)
    # what TrainingArguments do on their own, and the study did not
    others = []
    if _strategy(use) == "ddp" and not setting.find_unused_parameters:
        others.append("ddp_find_unused_parameters=False")
    if config.device == "cuda" and config.workload.input == "real" and not setting.pin_memory:
        others.append("dataloader_pin_memory=False")
    if not isinstance(config.workload, ScriptSpec | TrainerSpec):  # those clip as they do
        others += [] if clips else ["max_grad_norm=0"]
        if setting.optimizer_kernels == "default" and config.optimizer.name == "adamw":
            others.append("optim='adamw_torch'")
    return f"{words} With transformers also {', '.join(others)}." if others else words


def argument(knob: str, value: KnobValue) -> tuple[str, str]:
    """What torch calls a knob of this value, and the value in Python."""
    if knob == "bucket_cap_mb" and isinstance(value, str):
        return "bucket_cap_mb_list", f"[{', '.join(map(in_python, bucket_sizes_mb(value)))}]"
    return knob, in_python(value)


def in_python(value: KnobValue) -> str:
    """A knob's value as an argument: 50 for 50.0."""
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _strategy(use: Recommendation) -> str:
    return "single" if use.config.world_size == 1 else use.config.setting.strategy


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


def variables_of(use: Recommendation) -> str:
    """Environment variables, and the command that starts the processes."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(use.config.environment.items())]
    if use.threads is not None and "OMP_NUM_THREADS" not in use.config.environment:
        lines.append(f"export OMP_NUM_THREADS={use.threads}")
    script, called = use.config.workload, "train.py"
    if isinstance(script, ScriptSpec):
        first = ["-m", script.script] if script.is_module else [script.script]
        called = shlex.join([*first, *script.words(use.config.script_values())])
    elif use.config.device == "cpu" and not sets_malloc(use.config.environment):  # as the workers had it
        lines += [f"export {name}={value}" for name, (_, value) in KEPT_BY_MALLOC.items()]
    lines.append(f"{start_words(use)} {called}")
    return "\n".join(lines)


def _sentences(results: StudyResults, use: Recommendation) -> list[str]:
    """Whose code it is, and what to know of it; why this setting is the report's answer."""
    gain = f" ({percent(use.gain.gain, sign=True)} samples/s)" if use.gain and not use.is_default else ""
    fewer = "" if use is results.recommendation else f" for {devices_of(use.config)}, as more are slower"
    said = [f"This is the code of {use.label}{gain}{fewer}."]
    default = results.default.config if results.default else use.config
    now, size = use.config.global_batch_size, {"world_size": use.config.world_size}
    if (before := default.model_copy(update=size).global_batch_size) != now:
        choice = "that is a choice about speed, and the learning rate may have to follow"
        said.append(f"A step takes {now:,} samples in place of {before:,}: {choice}.")
    return said
