"""torch.compile for measuring: fixed shapes, nothing left of earlier trials, no recompilation unseen.

Imports torch's compiler only where a trial compiles.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def reset() -> None:
    """Drop everything compiled so far, so that a trial depends on none before it.

    After eight recompilations torch would go on uncompiled, with a line in a log: here it raises.
    """
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.config.fail_on_recompile_limit_hit = True


def compile_module(module: nn.Module) -> None:
    """Compile the whole module in place; under DDP torch splits the graph at the buckets."""
    module.compile(**_arguments())


def compile_forward(module: nn.Module) -> None:
    """Compile what the module itself computes; hooks such as FSDP's stay outside. No copies afterwards."""
    module.forward = torch.compile(module.forward, **_arguments())


def num_compiled() -> int:
    """Graphs compiled, or given up on, so far in this process."""
    from torch._dynamo.utils import counters

    return int(counters["frames"]["total"])


@contextmanager
def eager(compiled: bool) -> Iterator[None]:
    """Run compiled modules as they were: operations cannot be counted inside compiled code."""
    if not compiled:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _arguments() -> dict[str, Any]:
    arguments: dict[str, Any] = {"dynamic": False}
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        # without it modules of one class share compiled graphs: DDP's would not be split at its buckets
        arguments["isolate_recompiles"] = True
    return arguments
