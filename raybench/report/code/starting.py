"""How processes are started, and with which environment variables."""

from __future__ import annotations

import shlex

from raybench.analysis.recommendation import Recommendation
from raybench.report.code.base import Snippet


def per_node(use: Recommendation) -> int:
    """Devices of each node; nodes that have not equally many count as one."""
    size = use.config.world_size
    return size if size % use.nodes else size // use.nodes


def start_words(use: Recommendation) -> str:
    """The command before the script's name."""
    size = use.config.world_size
    if size == 1 or use.config.setting.strategy in ("single", "dp"):
        return "python"
    if per_node(use) == size:
        return f"torchrun --nproc-per-node={size}"
    return (
        f"torchrun --nnodes={use.nodes} --nproc-per-node={per_node(use)} --rdzv-backend=c10d "
        "--rdzv-endpoint=HOST:PORT"
    )


def variables_snippet(use: Recommendation) -> Snippet:
    """Environment variables, before the processes start."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(use.config.environment.items())]
    if use.threads is not None and "OMP_NUM_THREADS" not in use.config.environment:
        lines.append(f"export OMP_NUM_THREADS={use.threads}")
    lines = lines or ["# none: the study set no variables"]
    return Snippet("Environment variables", "sh", "\n".join([*lines, f"{start_words(use)} train.py"]))
