"""How processes are started, and with which environment variables."""

from __future__ import annotations

import shlex

from raybench.analysis.recommendation import Recommendation
from raybench.machine.host import KEPT_BY_MALLOC, MALLOC_PREFIX
from raybench.report.code.base import Snippet


def is_uneven(use: Recommendation) -> bool:
    """Whether the nodes have not equally many of the devices."""
    return use.config.world_size % use.nodes != 0


def uneven_words(use: Recommendation) -> list[str]:
    """What N of ``start_words`` stands for, where it is there."""
    if not is_uneven(use) or start_words(use) == "python":
        return []
    size = use.config.world_size
    return [f"N: the number of devices on this node, {size} on all {use.nodes} nodes together."]


def per_node(use: Recommendation) -> int:
    """Devices of each node; nodes that have not equally many count as one."""
    size = use.config.world_size
    return size if is_uneven(use) else size // use.nodes


def start_words(use: Recommendation) -> str:
    """The command before the script's name."""
    size = use.config.world_size
    if size == 1 or use.config.setting.strategy in ("single", "dp"):
        return "python"
    if use.nodes == 1:
        return f"torchrun --nproc-per-node={size}"
    number = "N" if is_uneven(use) else per_node(use)
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
    if use.config.device == "cpu" and not sets_malloc:  # as the workers had it
        lines += [f"export {name}={value}" for name, (_, value) in KEPT_BY_MALLOC.items()]
    lines = lines or ["# none: the study set no variables"]
    lines += [f"# {words}" for words in uneven_words(use)]
    return Snippet("Environment variables", "sh", "\n".join([*lines, f"{start_words(use)} train.py"]))
