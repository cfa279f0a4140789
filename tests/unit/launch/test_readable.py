"""What every node must read, on a cluster of two nodes with disks of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raybench.errors import RequestError
from raybench.launch.cluster import Cluster
from raybench.launch.nodes import Answered, Node
from raybench.launch.readable import check_workload, refuse_unseen
from raybench.machine.host import WorkerNeeds
from raybench.spec.study import Study
from raybench.workloads import Checked

NEEDS = WorkerNeeds("cpu", 1)
NAMES = ("first", "second")


class Joined(Cluster):
    """A cluster of two nodes, which Ray asks."""

    def working_nodes(self, needs: WorkerNeeds) -> list[Node]:
        return [Node(name, name, "10.0.0.1", cpus=1.0, gpus=0.0) for name in NAMES]


class TwoNodes(Joined):
    """The same; ``on`` says what a node answers in the place of what the function returns there."""

    def __init__(self, on: Callable[[str, Any], Any] = lambda name, answer: answer) -> None:
        super().__init__(address="10.0.0.1:6379")
        self._on, self.asked = on, list[tuple[object, ...]]()

    def ask(self, nodes: Any, function: Any, *arguments: Any) -> list[Any]:
        self.asked.append(arguments)
        return [self._on(node.hostname, function(*arguments)) for node in nodes]


def a_study(**fields: Any) -> Study:
    workload = {"factory": "tests.unit.launch.test_readable:Trained", "input": "real"}
    return Study.model_validate({"name": "own", "workload": workload, "training": {"epochs": 1}, **fields})


class Trained:
    """A workload that is trained on eight samples and tested on four."""

    def model(self) -> Any:
        from torch import nn

        return nn.Linear(2, 1)

    def dataset(self, train: bool = True) -> Any:
        import torch

        return torch.utils.data.TensorDataset(torch.zeros(8 if train else 4, 2))

    def loss(self, model: Any, batch: Any) -> Any:
        return model(batch[0]).sum()

    def metric(self, output: Any, batch: Any) -> int:
        return 0


def test_data_that_all_nodes_have_are_counted_once() -> None:
    cluster = TwoNodes(lambda name, answer: Checked((60_000, 10_000), untried=name))
    assert check_workload(cluster, a_study(), NEEDS) == Checked((60_000, 10_000), untried="first")
    assert len(cluster.asked) == 1


def test_a_node_without_the_data_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "RequestError: data: the files of fashion_mnist (received '/data')"

    def asked(nodes: Any, function: Any, *arguments: Any) -> list[Answered[Any]]:
        first, second = nodes
        return [Answered(first, value=(60_000, 10_000)), Answered(second, error=missing)]

    monkeypatch.setattr("raybench.launch.cluster.on_each_node", asked)
    with pytest.raises(RequestError) as refused:
        check_workload(Joined(address="10.0.0.1:6379"), a_study(), NEEDS)
    rule, line = refused.value.problems
    assert rule == "--address: nodes that can run raybench"
    assert line.startswith("second")
    assert line.endswith(missing)


def test_a_node_with_other_data_is_named_before_anything_starts() -> None:
    """A copy that broke off: shares of it would be of other samples than the rest has."""
    counts = {"first": (60_000, 10_000), "second": (59_999, 10_000)}
    with pytest.raises(RequestError) as refused:
        check_workload(TwoNodes(lambda name, answer: Checked(counts[name])), a_study(), NEEDS)
    first, *lines = refused.value.problems
    assert first == "data: the same on every node"
    assert len(lines) == 2
    assert all(name in line for name, line in zip(NAMES, lines, strict=True))
    assert lines[1].endswith(": 59,999 training and 10,000 test samples")


def test_a_directory_that_all_nodes_see_is_left_as_it_was(tmp_path: Path) -> None:
    refuse_unseen(TwoNodes(), tmp_path / "new" / "folder", NEEDS)
    assert not (tmp_path / "new" / "folder").exists()
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "a file").touch()
    refuse_unseen(TwoNodes(), kept, NEEDS)
    assert [each.name for each in kept.iterdir()] == ["a file"]


def test_a_node_that_does_not_see_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="every node reads and writes") as refused:
        refuse_unseen(TwoNodes(lambda name, answer: answer and name == "first"), tmp_path / "own", NEEDS)
    (line,) = refused.value.problems
    assert "second" in line
    assert "first" not in line
    assert not (tmp_path / "own").exists()


def test_another_directory_of_the_same_name_is_not_the_one(tmp_path: Path) -> None:
    """Each node has the folder on a disk of its own: it can write there, and does not see the marker."""

    class OwnDisks(TwoNodes):
        def ask(self, nodes: Any, function: Any, *arguments: Any) -> list[Any]:
            marker, content = arguments
            elsewhere = tmp_path / "disk of second"
            elsewhere.mkdir(exist_ok=True)
            return [function(marker, content), function(str(elsewhere / Path(marker).name), content)]

    with pytest.raises(RequestError, match="second"):
        refuse_unseen(OwnDisks(), tmp_path / "own", NEEDS)
    assert list((tmp_path / "disk of second").iterdir()) == []


def test_a_directory_that_the_driver_cannot_write_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cluster = TwoNodes()
    with pytest.raises(RequestError, match="cannot be written"):
        refuse_unseen(cluster, tmp_path / "file" / "folder", NEEDS)
    assert cluster.asked == []


def test_nothing_is_asked_of_this_machine_alone(tmp_path: Path) -> None:
    refuse_unseen(Cluster(), tmp_path / "folder", NEEDS)
    assert not (tmp_path / "folder").exists()
