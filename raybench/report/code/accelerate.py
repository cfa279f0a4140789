"""A loop with Accelerate."""

from __future__ import annotations

from raybench.report.code.base import Snippet, call, function, inner_call, inner_list
from raybench.report.code.starting import start_words, uneven_words
from raybench.report.code.torch_parts import NO_STATIC_GRAPH, Parts

TITLE = "Accelerate"
EPOCH = "train_epoch(accelerator, model, optimizer, loader, loss_of)"
OWN_BUCKET_MB = 25  # its default, which it does not pass on


def accelerate_snippet(parts: Parts) -> Snippet:
    """prepare, make_loader, the Accelerator, and an epoch."""
    if parts.strategy == "dp":
        return Snippet(TITLE, "python", "# Accelerate has no DataParallel")
    if parts.is_fp16_on_cpus:
        return Snippet(TITLE, "python", "# Accelerate has no fp16 on CPUs")
    parts.imports.add("from accelerate import Accelerator")
    blocks = ", block_class" if parts.needs_blocks and parts.strategy != "fsdp" else ""
    comments = [
        f"Start: {start_words(parts.use)} train.py",
        "Yours: model, train_set, optimizer, loss_of(model, batch). After prepare(model):",
        "model, optimizer, loader = accelerator.prepare(model, optimizer, make_loader(train_set))",
    ]
    comments += uneven_words(parts.use)
    sharded = parts.strategy == "fsdp"
    maker = f"make_accelerator({'block_class' if sharded else ''})"
    made = parts.model_lines(checkpointed=not sharded)
    if sharded and "compile" in parts.told:
        made.append("model.compile(dynamic=False)")
    prepare = [*parts.process_lines(), *made, "return model"]
    body = [
        *function(f"prepare(model{blocks})", "Threads, switches, and the model's layout.", prepare),
        *parts.loader_lines(sampled=False),
        *function(
            maker,
            "What prepares and synchronises.",
            _accelerator_lines(parts),
        ),
        *function(EPOCH, "One epoch.", _epoch_lines()),
    ]
    return parts.snippet(TITLE, comments, body, has_blocks=parts.needs_blocks)


def _accelerator_lines(parts: Parts) -> list[str]:
    named, comments = dict[str, str](), list[str]()
    if parts.device == "cpu":
        named["cpu"] = "True"
    if parts.strategy == "fsdp":
        named["fsdp_plugin"] = _plugin(parts)
    elif parts.dtype:
        named["mixed_precision"] = f'"{parts.use.config.setting.precision}"'
    if "gradient_accumulation" in parts.told:
        named["gradient_accumulation_steps"] = str(parts.accumulation)
    if parts.strategy == "ddp":
        handlers = _handlers(parts, comments)
        if handlers:
            named["kwargs_handlers"] = inner_list(handlers)
    return [*comments, *call("return Accelerator", [], named)]


def _handlers(parts: Parts, comments: list[str]) -> str:
    arguments = parts.ddp_arguments(renamed=False)
    if parts.static_graph_fails:
        del arguments["static_graph"]
        comments.append(NO_STATIC_GRAPH)
    if parts.told.get("bucket_cap_mb") == OWN_BUCKET_MB:
        comments.append(f"# bucket_cap_mb={OWN_BUCKET_MB} itself is not passed on, a little more is")
        arguments["bucket_cap_mb"] = f"{OWN_BUCKET_MB}.001"
    if "gradient_compression" in parts.told:
        parts.imports.add("from accelerate.utils import DDPCommunicationHookType")
        arguments["comm_hook"] = f"DDPCommunicationHookType.{str(parts.told['gradient_compression']).upper()}"
    if not arguments:
        return ""
    parts.imports.add("from accelerate.utils import DistributedDataParallelKwargs")
    return inner_call("DistributedDataParallelKwargs", arguments)


def _plugin(parts: Parts) -> str:
    parts.imports.update(["from accelerate.utils import FullyShardedDataParallelPlugin"])
    setting = parts.use.config.setting
    named = {
        "fsdp_version": "2",
        "reshard_after_forward": str(setting.fsdp_reshard),
        "auto_wrap_policy": '"transformer_based_wrap"',
        "transformer_cls_names_to_wrap": "[block_class.__name__]",
    }
    if parts.dtype:
        parts.imports.add("from torch.distributed.fsdp import MixedPrecisionPolicy")
        policy = {
            "param_dtype": parts.dtype,
            "reduce_dtype": "torch.float32",
            "output_dtype": "torch.float32",
        }
        named["mixed_precision_policy"] = inner_call("MixedPrecisionPolicy", policy)
    if setting.activation_checkpointing:
        named["activation_checkpointing"] = "True"
    return inner_call("FullyShardedDataParallelPlugin", named)


def _epoch_lines() -> list[str]:
    return [
        "for batch in loader:",
        "    with accelerator.accumulate(model), accelerator.autocast():",
        "        loss = loss_of(model, batch)",
        "        accelerator.backward(loss)",
        "        optimizer.step()",
        "        optimizer.zero_grad()",
    ]
