"""A plain loop of torch, started by torchrun."""

from __future__ import annotations

from raybench.report.code.base import Snippet, call, function
from raybench.report.code.starting import start_words, uneven_words
from raybench.report.code.torch_parts import Parts

WORDS = "Threads, switches, and the model under its strategy."


def torch_snippet(parts: Parts) -> Snippet:
    """prepare, make_loader, train_epoch, and a main that calls them."""
    blocks = ", block_class" if parts.needs_blocks else ""
    several = parts.strategy in ("ddp", "fsdp")
    comments = [
        f"Start: {start_words(parts.use)} train.py",
        "Yours: model, train_set, make_optimizer(parameters), and loss_of(model, batch), which also moves",
        "the batch to the model's device.",
    ]
    comments += uneven_words(parts.use)
    body = [
        *function(f"prepare(model, device{blocks})", WORDS, _prepare_lines(parts)),
        *parts.loader_lines(sampled=True),
        *parts.epoch_lines(),
        *function(
            f"main(model, train_set, make_optimizer, loss_of, epochs{blocks})",
            "Train.",
            _main_lines(parts, several, blocks),
        ),
    ]
    return parts.snippet("A plain loop", comments, body, has_blocks=parts.needs_blocks)


def wrapping_lines(parts: Parts) -> list[str]:
    """The strategy around ``model``, by torch's own classes."""
    lines: list[str] = []
    if parts.strategy == "ddp":
        parts.imports.add("from torch.nn.parallel import DistributedDataParallel")
        ids = {"device_ids": "[device]"} if parts.device == "cuda" else {}
        lines += call("model = DistributedDataParallel", ["model"], ids | parts.ddp_arguments())
        if hook := parts.hook:
            lines.append(f"model.register_comm_hook(None, {hook})")
    elif parts.strategy == "fsdp":
        lines += parts.shard_lines()
    elif parts.strategy == "dp":
        devices = f"list(range({parts.use.config.world_size}))"
        lines += call("model = torch.nn.DataParallel", ["model"], {"device_ids": devices})
    return lines


def _prepare_lines(parts: Parts) -> list[str]:
    moved = [] if parts.strategy == "fsdp" else ["model = model.to(device)"]
    return [*parts.process_lines(), *moved, *parts.model_lines(), *wrapping_lines(parts), "return model"]


def _main_lines(parts: Parts, several: bool, blocks: str) -> list[str]:
    lines, scaler = [], ", scaler" if parts.scales else ""
    if several:
        parts.imports.add("import torch.distributed as dist")
        lines.append(f'dist.init_process_group("{"nccl" if parts.device == "cuda" else "gloo"}")')
    if parts.device == "cuda":
        rank = "0"
        if several:
            parts.imports.add("import os")
            rank = 'int(os.environ["LOCAL_RANK"])'
        lines += [f'device = torch.device("cuda", {rank})', "torch.cuda.set_device(device)"]
    else:
        lines.append('device = torch.device("cpu")')
    lines += [
        f"model = prepare(model, device{blocks})",
        "optimizer = make_optimizer(model.parameters())",
        "loader = make_loader(train_set)",
    ]
    if parts.scales:
        lines.append(f'scaler = torch.amp.GradScaler("{parts.device}")')
    lines.append("for epoch in range(epochs):")
    if several:
        lines.append("    loader.sampler.set_epoch(epoch)")
    lines.append(f"    train_epoch(model, optimizer, loader, loss_of{scaler})")
    return [*lines, "dist.destroy_process_group()"] if several else lines
