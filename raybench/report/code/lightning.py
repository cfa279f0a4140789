"""A Trainer of Lightning."""

from __future__ import annotations

from raybench.report.code.base import Snippet, call, function, inner_call
from raybench.report.code.starting import is_uneven, per_node
from raybench.report.code.torch_parts import NO_STATIC_GRAPH, Parts

TITLE = "Lightning"
PRECISION = {"bf16": '"bf16-mixed"', "fp16": '"16-mixed"'}


def lightning_snippet(parts: Parts) -> Snippet:
    """prepare, make_loader, and a function that makes the Trainer."""
    if parts.strategy == "dp":
        return Snippet(TITLE, "python", "# Lightning 2 has no DataParallel")
    if parts.is_fp16_on_cpus:
        return Snippet(TITLE, "python", "# Lightning has no fp16 on CPUs: it takes bf16 instead")
    parts.imports.add("import lightning as L")
    blocks = ", block_class" if "activation_checkpointing" in parts.told else ""
    comments = [
        "prepare(model) is for the torch module inside your LightningModule, when it is made; Lightning",
        "splits the samples over the devices.",
    ]
    prepare = [*parts.process_lines(), *parts.model_lines(), "return model"]
    body = [
        *function(f"prepare(model{blocks})", "Threads, switches, and the model's layout.", prepare),
        *_sharding(parts),
        *parts.loader_lines(sampled=False),
        *function("make_trainer(**more)", "more: max_epochs, callbacks, ...", _trainer_lines(parts)),
    ]
    return parts.snippet(TITLE, comments, body, has_blocks=parts.needs_blocks)


def _sharding(parts: Parts) -> list[str]:
    if parts.strategy != "fsdp":
        return []
    words = "Called in your LightningModule's configure_model."
    return function("shard(model, block_class)", words, parts.shard_lines())


def _trainer_lines(parts: Parts) -> list[str]:
    use, comments = parts.use, list[str]()
    named = {
        "accelerator": '"gpu"' if parts.device == "cuda" else '"cpu"',
        "devices": str(per_node(use)),
    }
    if is_uneven(use):
        size = use.config.world_size
        comments.append(f"# {size} devices on {use.nodes} nodes: Lightning wants equally many on each")
    if use.nodes > 1 and per_node(use) != use.config.world_size:
        named["num_nodes"] = str(use.nodes)
    if parts.strategy == "ddp":
        parts.imports.add("from lightning.pytorch.strategies import DDPStrategy")
        arguments = parts.ddp_arguments()
        if parts.device == "cuda" and (hook := parts.hook):
            arguments["ddp_comm_hook"] = hook
        elif "gradient_compression" in parts.told:
            asked = parts.told["gradient_compression"]
            comments.append(f"# gradient_compression={asked}: Lightning registers hooks on GPUs only")
        if parts.static_graph_fails:
            del arguments["static_graph"]
            comments.append(NO_STATIC_GRAPH)
        named["strategy"] = inner_call("DDPStrategy", arguments)
    elif parts.strategy == "fsdp":
        parts.imports.add("from lightning.pytorch.strategies import ModelParallelStrategy")
        sizes = {"data_parallel_size": str(use.config.world_size), "tensor_parallel_size": "1"}
        named["strategy"] = inner_call("ModelParallelStrategy", sizes)
        comments.append("# precision is that of fully_shard's policy")
        if parts.accumulation > 1:
            comments.append("# gradient_accumulation: here gradients travel with every micro-batch")
    if parts.strategy != "fsdp" and parts.dtype:
        named["precision"] = PRECISION[use.config.setting.precision]
    if "gradient_accumulation" in parts.told:
        named["accumulate_grad_batches"] = str(parts.accumulation)
    if "cudnn_benchmark" in parts.told:
        named["benchmark"] = "True"
    return [*comments, *call("return L.Trainer", [], named | {"**more": ""})]
