"""The TrainingArguments of transformers."""

from __future__ import annotations

from raybench.report.code.base import Snippet, call, function, inner_mapping
from raybench.report.code.starting import start_words, uneven_words
from raybench.report.code.torch_parts import NO_STATIC_GRAPH, Parts, in_python

TITLE = "transformers"
WITHOUT = ("gradient_compression", "gradient_as_bucket_view")  # the knobs that it has no argument for
NAMES = {
    "bucket_cap_mb": "ddp_bucket_cap_mb",
    "find_unused_parameters": "ddp_find_unused_parameters",
    "broadcast_buffers": "ddp_broadcast_buffers",
    "static_graph": "ddp_static_graph",
    "workers": "dataloader_num_workers",
    "persistent_workers": "dataloader_persistent_workers",
    "pin_memory": "dataloader_pin_memory",
    "compile": "torch_compile",
    "gradient_accumulation": "gradient_accumulation_steps",
}


def transformers_snippet(parts: Parts) -> Snippet:
    """prepare and TrainingArguments."""
    if parts.is_fp16_on_cpus:
        return Snippet(TITLE, "python", "# transformers has no fp16 on CPUs")
    parts.imports.add("from transformers import TrainingArguments")
    blocks = "block_class" if parts.strategy == "fsdp" else ""
    comments = [
        f"Start: {start_words(parts.use)} train.py, with",
        f"Trainer(model=prepare(model), args=make_arguments({blocks}), train_dataset=train_set, ...).train()",
        *uneven_words(parts.use),
    ]
    prepare = [
        *parts.process_lines(tf32_too=False),
        *parts.model_lines(compiled=False, checkpointed=False),
        "return model",
    ]
    body = [
        *function("prepare(model)", "Threads, switches, and the model's layout.", prepare),
        *function(f"make_arguments({blocks})", "The study's setting.", _argument_lines(parts)),
    ]
    return parts.snippet(TITLE, comments, body, has_blocks=bool(blocks))


def _argument_lines(parts: Parts) -> list[str]:
    told, setting, comments = parts.told, parts.use.config.setting, list[str]()
    named = {"output_dir": '"out"', "per_device_train_batch_size": str(parts.use.config.batch_size)}
    if parts.device == "cpu":
        named["use_cpu"] = "True"
    if parts.dtype:
        named[setting.precision] = "True"
    if "precision" in told and parts.device == "cuda":
        named["tf32"] = str(told["precision"] == "tf32")
    if "activation_checkpointing" in told and parts.strategy != "fsdp":
        named["gradient_checkpointing"] = "True"
        comments.append("# gradient_checkpointing: from version 6 on activation_checkpointing")
    named |= {argument: in_python(told[knob]) for knob, argument in NAMES.items() if knob in told}
    if parts.static_graph_fails:
        del named["ddp_static_graph"]
        comments.append(NO_STATIC_GRAPH)
    if parts.strategy == "fsdp":
        named |= _sharding(parts)
    for knob in WITHOUT:
        if knob in told:
            comments.append(f"# {knob}={told[knob]}: TrainingArguments has no such argument")
    if told.get("bucket_cap_mb") == 25:
        comments.append("# ddp_bucket_cap_mb=25 is taken as DDP's own default, whose first bucket is 1 MiB")
    if parts.strategy == "dp":
        comments.append("# started by python, Trainer takes DataParallel over all visible GPUs")
    named["dataloader_drop_last"] = "True"
    comments.append("# Trainer clips gradients unless max_grad_norm=0; the study did not")
    return [*comments, *call("return TrainingArguments", [], named)]


def _sharding(parts: Parts) -> dict[str, str]:
    """FSDP by its own name; the policy follows bf16 or fp16."""
    setting = parts.use.config.setting
    listed = {
        "version": "2",
        "reshard_after_forward": str(setting.fsdp_reshard),
        "transformer_layer_cls_to_wrap": "[block_class.__name__]",
    }
    if setting.activation_checkpointing:
        listed["activation_checkpointing"] = "True"
    return {"fsdp": "True", "fsdp_config": inner_mapping(listed)}
