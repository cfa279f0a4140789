"""Which node is slow, told by all-reduces between pairs of nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import ray

from raybench.launch.cluster import Cluster
from raybench.launch.cluster_checks import examine_cluster, pairs, slow_nodes
from raybench.launch.nodes import Node
from raybench.worker import selftest

USUAL_S, TIMES = 0.3, 20


def nodes(number: int) -> list[Node]:
    return [Node(f"{each + 1:056x}", f"node-{each}", f"10.0.0.{each}", 4.0, 0.0) for each in range(number)]


def named(number: int, slow: dict[int, float], seed: int = 0) -> list[str]:
    """The nodes that are told, where the links of ``slow`` take so many times as long as the others."""
    draw, everyone = random.Random(seed), nodes(number)
    measured = {}
    for pair in pairs(everyone):
        factor = max(slow.get(everyone.index(node), 1.0) for node in pair)
        measured[pair] = [USUAL_S * factor * draw.lognormvariate(0, 0.05) for _ in range(TIMES)]
    return [each.found.split(":")[0] for each in slow_nodes(measured)]


def test_every_node_is_in_two_pairs() -> None:
    assert pairs(nodes(1)) == []
    one, other = nodes(2)
    assert pairs([one, other]) == [(one, other)]
    several = pairs(nodes(5))
    assert len(several) == 5
    assert all(sum(node in pair for pair in several) == 2 for node in nodes(5))


@pytest.mark.parametrize("number", [3, 4, 8])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_node_with_a_slower_link_is_named_and_no_other(number: int, which: int) -> None:
    place = which % number
    assert named(number, {place: 3.0}) == [f"node-{place}"]


def test_two_slow_nodes_of_eight_are_both_named() -> None:
    assert sorted(named(8, {2: 3.0, 5: 2.0})) == ["node-2", "node-5"]


def test_of_two_nodes_none_can_be_told() -> None:
    assert named(2, {1: 3.0}) == []


def test_nothing_is_named_where_links_are_alike() -> None:
    assert sum(bool(named(8, {}, seed)) for seed in range(50)) == 0


class Tasks:
    """Ray's tasks: each node's process takes one after the other, until it has had as many as it may."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.process: set[str] = set()  # what is left in the one that runs
        self._processes: dict[str, set[str]] = {}
        patch.setattr(ray, "remote", self._remote)
        patch.setattr(ray, "wait", lambda asked, **_: (asked, []))
        patch.setattr(ray, "get", self._get)

    def _remote(self, *, max_calls: int = 0, **options: object) -> Callable[[Any], Any]:
        tasks = self

        class Remote:
            def __init__(self, function: Any) -> None:
                self._function = function

            def options(self, scheduling_strategy: Any) -> Remote:
                self._node = scheduling_strategy.node_id
                return self

            def remote(self, *arguments: object) -> object:
                tasks.process = tasks._processes.setdefault(self._node, set())
                if max_calls:
                    del tasks._processes[self._node]
                try:
                    return self._function(*arguments)
                except RuntimeError as error:
                    return ray.exceptions.RayTaskError("measure", "", error)

        return Remote

    def _get(self, answer: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_broken_link_is_not_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed all-reduce leaves its process group behind; the ring's next pair has one of its nodes."""
    tasks, everyone = Tasks(monkeypatch), nodes(4)

    def measure(rank: int, meeting_point: str, backend: str) -> list[float]:
        if "a group" in tasks.process:
            raise RuntimeError("trying to initialize the default process group twice!")
        tasks.process.add("a group")
        if meeting_point.startswith("tcp://10.0.0.1:"):  # from node-1 to node-2
            raise RuntimeError("Connection closed by peer")
        tasks.process.clear()
        return [USUAL_S] * TIMES

    monkeypatch.setattr(selftest, "measure", measure)
    monkeypatch.setattr("raybench.launch.cluster_checks.examine", lambda with_workers: [])
    cluster = Cluster(address="head:6379")
    monkeypatch.setattr(cluster, "connect", lambda: None)
    monkeypatch.setattr(cluster, "_alive", lambda: everyone)
    found = [each for each in examine_cluster(cluster) if each.name == "all-reduce"]
    assert [each.status for each in found] == ["ok", "missing", "ok", "ok"]
    assert "Connection closed by peer" in found[1].found
