"""All-reduces between each node and the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import ray

from raybench.launch.cluster import Cluster
from raybench.launch.cluster_checks import examine_cluster
from raybench.launch.nodes import Node
from raybench.machine.checks import Check
from raybench.worker import selftest

USUAL_S, TIMES = 0.3, 20


def nodes(number: int, gpus: float = 0.0) -> list[Node]:
    return [Node(f"{each + 1:056x}", f"node-{each}", f"10.0.0.{each}", 4.0, gpus) for each in range(number)]


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


def all_reduces(patch: pytest.MonkeyPatch, everyone: list[Node], free: list[Node]) -> list[Check]:
    """What is found of all-reduces between ``everyone``, who have ``free`` left."""
    patch.setattr("raybench.launch.cluster_checks.examine", lambda with_workers: [])
    cluster = Cluster(address="head:6379")
    patch.setattr(cluster, "connect", lambda: None)
    patch.setattr(cluster, "_alive", lambda: everyone)
    patch.setattr(cluster, "free_nodes", lambda: free)
    return [each for each in examine_cluster(cluster) if each.name == "all-reduce"]


def test_gpus_that_others_use_are_no_fault_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that asks for one would be pending, and then no answer."""
    Tasks(monkeypatch)
    monkeypatch.setattr(selftest, "measure", lambda *ranks: [USUAL_S] * TIMES)
    everyone = nodes(3, gpus=8.0)
    free = [*everyone[:2], replace(everyone[2], gpus=0.0)]
    found = all_reduces(monkeypatch, everyone, free)
    assert [each.status for each in found] == ["ok", "warning"]
    assert "GPUs" in found[1].found
    assert "IFNAME" not in str(found[1].mend)


def test_a_broken_link_is_not_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed all-reduce leaves its process group behind; the next pair has one of its nodes."""
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
    found = all_reduces(monkeypatch, everyone, everyone)
    assert [each.status for each in found] == ["ok", "missing", "ok"]
    assert "Connection closed by peer" in found[1].found
