"""The nodes of a Ray cluster, and what is asked of each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from raybench.errors import first_line
from raybench.machine.host import WorkerNeeds

ANSWER_S = 120.0  # of a node: what travels is unpacked there, and a process starts
LONGEST_ERROR = 300  # characters

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Node:
    """One node, as Ray counts what it has."""

    node_id: str
    hostname: str
    address: str
    cpus: float
    gpus: float

    def places(self, needs: WorkerNeeds) -> int:
        """The workers that fit on it, if nothing else runs there."""
        by_cores = int(self.cpus // needs.cpus)
        return min(int(self.gpus), by_cores) if needs.device == "cuda" else by_cores

    def __str__(self) -> str:
        return self.hostname if self.hostname == self.address else f"{self.hostname} ({self.address})"


@dataclass(frozen=True)
class Answered(Generic[Answer]):
    """What a node answered, or why it did not."""

    node: Node
    value: Answer | None = None
    error: str | None = None


def alive_nodes() -> list[Node]:
    """Those that Ray reaches now, by address."""
    import ray  # takes seconds, and a study on this machine does not ask

    found = [_node(each) for each in ray.nodes() if each["Alive"]]
    return sorted(found, key=lambda node: (node.address, node.node_id))


def free_nodes() -> list[Node]:
    """The same with the cores and GPUs alone that nobody uses now."""
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()
    return [
        replace(node, cpus=free[node.node_id].get("CPU", 0.0), gpus=free[node.node_id].get("GPU", 0.0))
        for node in alive_nodes()
        if node.node_id in free
    ]


def on_each_node(
    nodes: Sequence[Node], function: Callable[..., Answer], *arguments: object
) -> list[Answered[Answer]]:
    """Call ``function`` in a process of its own on every node, at the same time; in the order of ``nodes``.

    What it raises, and a node that does not answer within ``ANSWER_S``, is an error in words.
    """
    return on_nodes(function, [(node, arguments) for node in nodes])


def on_nodes(
    function: Callable[..., Answer],
    calls: Sequence[tuple[Node, tuple[object, ...]]],
    *,
    gpus: int = 0,
    once: bool = False,
) -> list[Answered[Answer]]:
    """The same with other arguments on each node, and so many of its GPUs.

    ``once``: each process ends with its call. Else Ray may give it the next one, beside what this one left in
    it; that one comes sooner.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def on(node: Node) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(node.node_id, soft=False)

    most = {"max_calls": 1} if once else {}
    task = ray.remote(num_cpus=0, num_gpus=gpus, max_retries=0, **most)(function)
    asked = [task.options(scheduling_strategy=on(node)).remote(*arguments) for node, arguments in calls]
    done, _ = ray.wait(asked, num_returns=len(asked), timeout=ANSWER_S) if asked else ([], [])
    return [
        _answered(node, reference) if reference in done else _silent(node, reference)
        for (node, _), reference in zip(calls, asked, strict=True)
    ]


def _answered(node: Node, reference: Any) -> Answered[Any]:
    import ray

    try:
        return Answered(node, value=ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if isinstance(getattr(error, "cause", None), BaseException) else error
        return Answered(node, error=f"{type(cause).__name__}: {cause}"[:LONGEST_ERROR])
    except ray.exceptions.RayError as error:
        return Answered(node, error=first_line(error)[:LONGEST_ERROR])


def _silent(node: Node, reference: Any) -> Answered[Any]:
    import ray

    ray.cancel(reference, force=True)
    return Answered(node, error=f"no answer within {ANSWER_S:g} s")


def _node(found: Mapping[str, Any]) -> Node:
    resources = found["Resources"]
    return Node(
        node_id=found["NodeID"],
        hostname=found["NodeManagerHostname"],
        address=found["NodeManagerAddress"],
        cpus=resources.get("CPU", 0.0),
        gpus=resources.get("GPU", 0.0),
    )
