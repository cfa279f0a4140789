"""A TorchTrainer of Ray Train."""

from __future__ import annotations

import json

from raybench.report.code.base import Snippet, call, function, inner_call, inner_mapping
from raybench.report.code.torch_loop import WORDS, wrapping_lines
from raybench.report.code.torch_parts import Parts

TITLE = "Ray Train"


def ray_snippet(parts: Parts) -> Snippet:
    """prepare, make_loader, train_epoch, the loop of a worker, and its trainer."""
    if parts.strategy == "dp":
        return Snippet(TITLE, "python", "# Ray Train has one process for each device: no DataParallel")
    blocks = ", block_class" if parts.needs_blocks else ""
    comments = [
        "Yours: make_model(), make_train_set(), make_optimizer(parameters), and loss_of(model, batch), which",
        "also moves the batch to the model's device. Start: make_trainer(epochs=3).fit()",
    ]
    prepare = [*parts.process_lines(), *parts.model_lines(), *_wrapped(parts), "return model"]
    sampled = parts.strategy != "single"
    body = [
        *function(f"prepare(model{blocks})", WORDS, prepare),
        *parts.loader_lines(sampled=True),
        *parts.epoch_lines(),
        *function("train_loop(config)", "What each worker runs.", _loop_lines(parts, sampled, blocks)),
        *function("make_trainer(**config)", "fit() of it trains.", _trainer_lines(parts)),
    ]
    return parts.snippet(TITLE, comments, body, has_blocks=parts.needs_blocks)


def _wrapped(parts: Parts) -> list[str]:
    """prepare_model moves and wraps; it knows no fully_shard."""
    if parts.strategy == "fsdp":
        return wrapping_lines(parts)
    parts.imports.add("from ray.train.torch import prepare_model")
    named = {}
    if arguments := parts.ddp_arguments():
        named["parallel_strategy_kwargs"] = inner_mapping(arguments)
    lines = call("model = prepare_model", ["model"], named)
    if hook := parts.hook:
        lines.append(f"model.register_comm_hook(None, {hook})")
    return lines


def _loop_lines(parts: Parts, sampled: bool, blocks: str) -> list[str]:
    scaler = ", scaler" if parts.scales else ""
    lines = [
        f"model = prepare(make_model(){blocks})",
        "optimizer = make_optimizer(model.parameters())",
        "loader = make_loader(make_train_set())",
    ]
    if parts.scales:
        lines.append(f'scaler = torch.amp.GradScaler("{parts.device}")')
    lines.append('for epoch in range(config["epochs"]):')
    if sampled:
        lines.append("    loader.sampler.set_epoch(epoch)")
    return [*lines, f"    train_epoch(model, optimizer, loader, loss_of{scaler})"]


def _trainer_lines(parts: Parts) -> list[str]:
    parts.imports.update(
        [
            "from ray.train import RunConfig, ScalingConfig",
            "from ray.train.torch import TorchConfig, TorchTrainer",
        ]
    )
    config = parts.use.config
    each = {"num_workers": str(config.world_size)}
    resources = f'{{"CPU": {config.cpus_per_worker}}}'
    if parts.device == "cuda":
        each["use_gpu"] = "True"
        resources = f'{{"CPU": {config.cpus_per_worker}, "GPU": 1}}'
    each["resources_per_worker"] = resources
    if parts.use.nodes > 1 and isinstance(config.placement, str):
        each["placement_strategy"] = f'"{config.placement.upper()}"'
    run = {}
    if config.environment:
        variables = {name: json.dumps(value) for name, value in sorted(config.environment.items())}
        run["worker_runtime_env"] = inner_mapping({"env_vars": inner_mapping(variables)})
    backend = "nccl" if parts.device == "cuda" else "gloo"
    named = {
        "train_loop_config": "config",
        "torch_config": f'TorchConfig(backend="{backend}")',
        "scaling_config": inner_call("ScalingConfig", each),
        "run_config": inner_call("RunConfig", run),
    }
    return call("return TorchTrainer", ["train_loop"], named)
