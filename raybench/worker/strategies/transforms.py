"""What is done to a model before its strategy: torch.compile, and checkpoints of its repeated blocks.

Imports torch's compiler only where a trial compiles: with fixed shapes, nothing left of earlier trials, no
recompilation unseen. Repeated blocks are also what FSDP shards and gathers at a time.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.spec.knobs import Setting


def reset() -> None:
    """Drop everything compiled so far, so that a trial depends on none before it.

    After eight recompilations torch would go on uncompiled, with a line in a log: here it raises.
    """
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    torch._dynamo.config.fail_on_recompile_limit_hit = True


def compiled(module: nn.Module, setting: Setting) -> nn.Module:
    """The module, as a whole compiled in place where its setting says so.

    Under DDP torch splits the graph at the buckets.
    """
    if setting.compile:
        module.compile(**_compile_arguments())
    return module


def compile_forward(module: nn.Module) -> None:
    """Compile what the module itself computes; hooks such as FSDP's stay outside. No copies afterwards."""
    module.forward = torch.compile(module.forward, **_compile_arguments())


def num_compiled() -> int:
    """Graphs compiled, or given up on, since ``reset``."""
    from torch._dynamo.utils import counters

    return int(counters["frames"]["total"])


def _compile_arguments() -> dict[str, Any]:
    arguments: dict[str, Any] = {"dynamic": False}
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        # without it modules of one class share compiled graphs: DDP's would not be split at its buckets
        arguments["isolate_recompiles"] = True
    return arguments


Container = nn.ModuleList | nn.Sequential


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Transformer layers, residual blocks and their like, in the model's order, none inside another.

    The first of these rules that finds any: modules of the classes that a transformers model names in
    ``_no_split_modules``; composite children of a ModuleList or Sequential whose class stands there at
    least twice; the children with parameters of the largest such container (an MLP's Linear layers).
    """
    named = {name for module in model.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    blocks = list(_outermost(model, named)) or list(_composite(model)) or _layers(model)
    return list(dict.fromkeys(blocks))  # a block that is used twice is one block


def checkpointed(model: nn.Module, setting: Setting) -> nn.Module:
    """The model; where its setting says so, its repeated blocks keep only their inputs.

    The rest is computed again in the backward pass.

    Raises ``InvalidTrialError`` for a model without such blocks.
    """
    if not setting.activation_checkpointing:
        return model
    # torch's own wrapper, which keeps the names of parameters and can be copied and sharded
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    blocks = set(repeated_blocks(model))
    if not blocks:
        raise InvalidTrialError("activation_checkpointing: the model has no repeated blocks")
    apply_activation_checkpointing(model, check_fn=lambda module: module in blocks)
    return model


def _outermost(module: nn.Module, names: set[str]) -> Iterator[nn.Module]:
    for child in module.children():
        # what checkpointing has wrapped is one block with its wrapper
        if type(getattr(child, "_checkpoint_wrapped_module", child)).__name__ in names:
            yield child
        else:
            yield from _outermost(child, names)


def _composite(module: nn.Module) -> Iterator[nn.Module]:
    children = list(module.children())
    kinds: Counter[type] = Counter()
    if isinstance(module, Container):
        kinds.update(type(child) for child in children if list(child.children()) and _size(child))
    for child in children:
        if kinds[type(child)] > 1:
            yield child
        else:
            yield from _composite(child)


def _layers(model: nn.Module) -> list[nn.Module]:
    containers = [module for module in model.modules() if isinstance(module, Container)]
    largest = max(containers, key=_size, default=None)
    layers = [child for child in largest.children() if _size(child)] if largest is not None else []
    return layers if len(layers) > 1 else []


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
