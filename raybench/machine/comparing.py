"""Whether measurements on two machines, or on two nodes of a cluster, compare, and what differs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from raybench.machine.environment import Environment
from raybench.machine.gpus import Gpu

# Where things are, what is logged, which job it is: nothing that changes how fast a step is.
_NO_TIMING = re.compile(
    r"(RAY_|SLURM_|CUDA_(HOME|PATH|ROOT|CACHE_PATH|VERSION|VISIBLE_DEVICES|BIN_PATH|TOOLKIT)"
    r"|TORCH_(HOME|LOGS|EXTENSIONS_DIR|SHOW_CPP_STACKTRACES)|NCCL_(DEBUG|VERSION))"
)
MOST_NAMES = 4  # of nodes that differ alike
_MEMORY_TOLERANCE = 0.01  # a kernel update reserves another few MB


def unlike_nodes(environment: Environment) -> list[str]:
    """What differs between nodes and may make one of them slower, a line each: key, values, who has which."""
    nodes = environment.every_node
    described = [comparable(node) for node in nodes]
    lines = []
    for key in dict.fromkeys(key for each in described for key in each):
        names: dict[str, list[str]] = {}
        for node, each in zip(nodes, described, strict=True):
            names.setdefault(_word(each.get(key)), []).append(node.hostname)
        if len(names) > 1 and not (key == "memory_bytes" and _near(nodes)):
            parts = [f"{value} on {_few(who)}" for value, who in names.items()]
            lines.append(f"{key}: {', '.join(parts)}")
    return lines


def differences(before: Environment, now: Environment) -> list[str]:
    """What makes measurements in the two incomparable, a line each: ``key: A before, B now``.

    Hardware, limits, versions and variables that change timing count. The name of the host does not
    (a cluster gives another of the same nodes), nor the kernel's release, nor clock and load, which each
    round records; what may still matter is a note, see ``unlike_before``.
    """
    old, new = before.every_node, now.every_node
    if len(old) != len(new):
        return [f"nodes: {len(old)} before, {len(new)} now"]
    lines = []
    # a cluster may give the same kinds of nodes in another order
    for one, other in zip(sorted(old, key=_kind), sorted(new, key=_kind), strict=True):
        lines += _differences(one, other)
    return list(dict.fromkeys(lines))


def differences_on_resume(before: Environment, now: Environment) -> list[str]:
    """The same where nodes may be missing: those that are left are held against the most alike before."""
    old, new = list(before.every_node), now.every_node
    if len(new) >= len(old):
        return differences(before, now)
    lines = []
    for node in new:
        found = [_differences(each, node) for each in old]
        nearest = min(range(len(old)), key=lambda index: len(found[index]))
        lines += found[nearest]
        del old[nearest]
    return list(dict.fromkeys(lines))


def _kind(environment: Environment) -> str:
    described = comparable(environment)
    described.pop("memory_bytes")
    return repr(sorted((key, repr(value)) for key, value in described.items()))


def _differences(before: Environment, now: Environment) -> list[str]:
    old, new = comparable(before), comparable(now)
    return [
        f"{key}: {_word(old.get(key))} before, {_word(new.get(key))} now"
        for key in [*old, *(key for key in new if key not in old)]
        if old.get(key) != new.get(key) and not (key == "memory_bytes" and _near((before, now)))
    ]


def _near(nodes: Sequence[Environment]) -> bool:
    sizes = [node.memory_bytes for node in nodes]
    return max(sizes) - min(sizes) <= _MEMORY_TOLERANCE * max(sizes)


def _word(value: object) -> str:
    return "none" if value is None else str(value)


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def unlike_before(before: Environment, now: Environment) -> list[str]:
    """What differs and may matter, a line each, without making the two incomparable: code and kernel."""
    lines = []
    if before.commit != now.commit:
        lines.append(f"commit: {before.commit or 'unknown'} before, {now.commit or 'unknown'} now")
    if before.dirty or now.dirty:
        lines.append("commit: the checkout has uncommitted changes, which may differ")
    if before.kernel != now.kernel:
        lines.append(f"kernel: {before.kernel} before, {now.kernel} now")
    return lines


def comparable(environment: Environment) -> dict[str, object]:
    """What changes timing, by a dotted name: see ``differences``."""
    names = (
        "cpu_model",
        "cores",
        "usable_cores",
        "sockets",
        "numa_nodes",
        "memory_bytes",
        "memory_limit_bytes",
    )
    more = ("governor", "python", "driver_version", "cuda_version")
    flat: dict[str, object] = {name: getattr(environment, name) for name in (*names, *more)}
    flat |= {f"packages.{name}": version for name, version in environment.packages.items()}
    flat["number of GPUs"] = len(environment.gpus)
    for index, gpu in enumerate(environment.gpus):
        flat |= {f"gpus[{index}].{name}": getattr(gpu, name) for name in Gpu.COMPARED}
    for index, links in enumerate(environment.gpu_links):
        flat[f"gpu_links[{index}]"] = " ".join(links)
    for name, value in environment.variables.items():
        if not _NO_TIMING.match(name):
            flat[f"variables.{name}"] = value
    for name in environment.other_variables:
        if not _NO_TIMING.match(name):
            flat[f"variables.{name}"] = "set"
    return flat
