"""What ``doctor --address`` looks at: every node, and what the nodes must have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from raybench.launch.cluster import Cluster
from raybench.launch.nodes import Answered, Node, on_each_node, on_nodes
from raybench.machine.checks import Check, all_reduce_words, examine
from raybench.machine.environment import capture, of_nodes, unlike_nodes
from raybench.machine.host import WorkerNeeds, free_port

A_CORE = WorkerNeeds("cpu", 1)


def examine_cluster(cluster: Cluster) -> list[Check]:
    """Every node with a core for a worker, then versions and an all-reduce between nodes.

    Raises ``RequestError`` where the cluster does not answer.
    """
    cluster.connect()
    nodes, idle = cluster.working_nodes(A_CORE), cluster.working_nodes(A_CORE, fits=False)
    cores, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    words = f"{len(nodes)} with {cores:g} cores and {gpus:g} GPUs for Ray: {', '.join(map(str, nodes))}"
    found = [Check("nodes", "ok", words)]
    if not nodes:
        mend = "ray start --address HOST:PORT --num-cpus N"
        found = [Check("nodes", "missing", "none has a core for a worker", mend)]
    if idle:
        words = f"no cores for workers, not examined: {', '.join(map(str, idle))}"
        found.append(Check("nodes", "ok", words))
    answers = on_each_node(nodes, examine, False)
    found += _merged(answers)
    answering = [each.node for each in answers if each.error is None]
    found += _versions(answering)
    free = {node.node_id: node.gpus for node in cluster.free_nodes()}
    found += [_all_reduce(*pair, free) for pair in pairwise(answering)]
    return found


def _merged(answers: Sequence[Answered[list[Check]]]) -> Iterator[Check]:
    """Each thing found once, with the nodes where it was found, unless that is on all of them."""
    where: dict[Check, list[Node]] = {}
    for answer in answers:
        mend = f"ray logs raylet.err --node-ip {answer.node.address}"
        silent = [Check("node", "missing", answer.error, mend)] if answer.error is not None else []
        for check in dict.fromkeys(answer.value or silent):
            where.setdefault(check, []).append(answer.node)
    names = [check.name for check in where]
    for check in sorted(where, key=lambda check: names.index(check.name)):
        nodes = where[check]
        on = "" if len(nodes) == len(answers) > 1 else f"{', '.join(node.hostname for node in nodes)}: "
        yield replace(check, found=f"{on}{check.found}")


def _versions(nodes: Sequence[Node]) -> Iterator[Check]:
    """Whether measurements on one node are like those on another."""
    known = [each.value for each in on_each_node(nodes, capture) if each.value is not None]
    if len(known) < 2:
        return
    differ = unlike_nodes(of_nodes(known))
    if not differ:
        yield Check("nodes", "ok", "all nodes have the same hardware, limits, versions and variables")
    for words in differ:
        yield Check("nodes", "warning", f"the nodes differ in {words}", "install the same on every node")


def _all_reduce(first: Node, other: Node, free: Mapping[str, float]) -> Check:
    """Of two workers, one on each node, where both have ``free`` GPUs or need none."""
    names = f"{first.hostname} and {other.hostname}"
    on_gpus = first.gpus >= 1 and other.gpus >= 1
    if on_gpus and min(free.get(node.node_id, 0) for node in (first, other)) < 1:
        return Check("all-reduce", "warning", f"{names}: their GPUs are in use", "doctor, once they are free")
    backend = "nccl" if on_gpus else "gloo"
    (port,) = on_each_node([first], free_port, first.address)
    if port.error is not None:
        return Check("all-reduce", "missing", f"{first}: {port.error}", "python -m raybench.study doctor")
    meeting_point = f"tcp://{first.address}:{port.value}"
    ranks = [(node, (rank, meeting_point, backend)) for rank, node in enumerate((first, other))]
    # one that fails leaves its process group half made, and the next pair has one of these nodes too
    answers = on_nodes(_measure, ranks, gpus=int(on_gpus), once=True)
    if errors := [each.error for each in answers if each.error is not None]:
        leads = f"the one that leads from {first.address} to {other.address}"
        mend = f"{backend.upper()}_SOCKET_IFNAME=INTERFACE on every node: {leads}"
        return Check("all-reduce", "missing", f"{names}: {errors[0]}", mend)
    assert answers[0].value is not None
    num_bytes, times_s = answers[0].value
    return Check("all-reduce", "ok", f"{names}: {all_reduce_words(backend, num_bytes, times_s)}")


def _measure(rank: int, meeting_point: str, backend: str) -> tuple[int, list[float]]:
    from raybench.worker import selftest

    return selftest.NUM_BYTES, selftest.measure(rank, meeting_point, backend)
