"""Places on nodes, and what travels to them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raybench
from raybench.driver.groups import Groups
from raybench.driver.time_budget import TimeBudget
from raybench.errors import ClusterBusyError, GroupLostError, NoRoomError, RequestError
from raybench.launch.cluster import Cluster
from raybench.launch.nodes import Answered, Node
from raybench.launch.runtime_env import runtime_environment
from raybench.machine import gpus, host
from raybench.machine.host import DeviceKind, Resources, WorkerNeeds
from raybench.plan.make_plan import make_plan
from raybench.records.messages import GroupInfo
from raybench.spec.workloads import FactorySpec, MLPSpec
from tests.support.planted import FakeRunner
from tests.unit.studies import study


def a_node(cpus: float, gpus: float, number: int = 1) -> Node:
    return Node(f"id-{number}", f"node-{number}", f"10.0.0.{number}", cpus, gpus)


@pytest.mark.parametrize(
    ("node", "needs", "places"),
    [
        (a_node(8, 0), WorkerNeeds("cpu", 3), 2),
        (a_node(8, 4), WorkerNeeds("cuda", 1), 4),
        (a_node(8, 4), WorkerNeeds("cuda", 4), 2),  # cores run out first
        (a_node(0, 0), WorkerNeeds("cpu", 1), 0),  # a head that only coordinates
        (a_node(8, 0), WorkerNeeds("cuda", 1), 0),
    ],
)
def test_the_workers_that_fit(node: Node, needs: WorkerNeeds, places: int) -> None:
    assert node.places(needs) == places


def test_ray_client_is_refused_with_what_works() -> None:
    with pytest.raises(RequestError, match=r"ray job submit.*received 'ray://head:10001'"):
        Cluster(address="ray://head:10001")


def test_an_interface_that_is_not_here_is_refused_before_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth77")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(RequestError, match=r"^GLOO_SOCKET_IFNAME: .*\blo\b.*received 'eth77'"):
        Cluster().connect()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth77")
    cluster = Cluster()
    cluster.prepare(WorkerNeeds("cuda", 1), tell=lambda words: None)
    with pytest.raises(RequestError, match=r"^NCCL_SOCKET_IFNAME: .*\blo\b.*received 'eth77'"):
        cluster.connect()
    cluster.close()


class Joined(Cluster):
    """A cluster of given nodes, which nobody has to start."""

    def __init__(self, *nodes: Node) -> None:
        super().__init__(address="head:6379")
        self.given = list(nodes)

    def _alive(self) -> list[Node]:
        return self.given


def test_the_driver_may_be_a_node_without_devices() -> None:
    head, one, other = a_node(4, 0), a_node(8, 4, 2), a_node(2, 4, 3)
    cluster, needs = Joined(head, one, other), WorkerNeeds("cuda", 1)
    assert cluster.device_kind() == "cuda"
    assert cluster.working_nodes(needs) == [one, other]
    assert cluster.working_nodes(needs, fits=False) == [head]
    assert sum(cluster.places(needs).values()) == 6
    with pytest.raises(RequestError, match=r"at most 6 workers of 1 core and a GPU fit into 3 nodes"):
        cluster.refuse_unplaceable(8, needs)


def test_a_node_that_names_an_interface_which_it_lacks_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node is asked, with its own variables; of the driver's nothing counts."""
    wrong = {"GLOO_SOCKET_IFNAME": "eth77", "NCCL_SOCKET_IFNAME": "eth78"}
    of_nodes: dict[str, dict[str, str]] = {"node-1": {}, "node-2": wrong}

    def ask(nodes: list[Node], function: Any, *arguments: object) -> list[Answered[Any]]:
        answers = []
        for node in nodes:
            with pytest.MonkeyPatch.context() as there:
                for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                    there.delenv(name, raising=False)
                for name, value in of_nodes[node.hostname].items():
                    there.setenv(name, value)
                answers.append(Answered(node, function(*arguments)))
        return answers

    monkeypatch.setattr("raybench.launch.cluster.on_each_node", ask)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth99")
    cluster = Joined(a_node(2, 2), a_node(2, 2, 2))
    gloo, nccl = (f"node-2 (10.0.0.2): {name}: an interface that is up: " for name in wrong)
    devices: dict[DeviceKind, list[str]] = {"cpu": [gloo], "cuda": [gloo, nccl]}
    for device, starts in devices.items():
        with pytest.raises(RequestError) as told:
            cluster.environments(WorkerNeeds(device, 1))
        lines = told.value.problems
        assert len(lines) == len(starts)
        assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))
    wrong.clear()
    assert len(cluster.environments(WorkerNeeds("cuda", 1))) == 2


def test_a_late_node_is_waited_for_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, told = Joined(a_node(1, 0)), list[str]()

    def joins(seconds: float) -> None:
        cluster.given.append(a_node(1, 0, len(cluster.given) + 1))

    monkeypatch.setattr("raybench.launch.cluster.sleep", joins)
    cluster.await_places(3, WorkerNeeds("cpu", 1), 60.0, told.append)
    assert sum(cluster.places(WorkerNeeds("cpu", 1)).values()) == 3
    assert told == ["waiting up to 60 s for 3 places for workers of 1 core: 1 there now"]


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr("raybench.launch.cluster.monotonic", lambda: self.now)
        patch.setattr("raybench.launch.cluster.sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def busy_cluster(patch: pytest.MonkeyPatch, free_after_s: float) -> tuple[Joined, list[str], Clock]:
    """Two cores, one of them used by others until so long has passed; and what it tells."""
    cluster, clock, told = Joined(a_node(2, 0)), Clock(patch), list[str]()
    patch.setattr(cluster, "_tell", told.append)
    answer = "raybench.launch.cluster.on_each_node"
    patch.setattr(answer, lambda nodes, function: [Answered(node, "a name") for node in nodes])
    patch.setattr(cluster, "free_nodes", lambda: [a_node(2 if clock.now >= 100 + free_after_s else 1, 0)])
    return cluster, told, clock


def test_a_busy_cluster_is_waited_for_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, told, clock = busy_cluster(monkeypatch, 30)
    cluster.await_free(2, WorkerNeeds("cpu", 1), 60.0)
    assert clock.now == pytest.approx(130, abs=1.1)
    assert told == [
        "waiting up to 60 s (resources.wait_seconds) for 2 free places for workers of 1 core on the nodes of "
        "a trial: 1 of 2 are free, others use the rest"
    ]


def test_places_that_are_given_back_at_once_are_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, told, _ = busy_cluster(monkeypatch, 3)
    cluster.await_free(2, WorkerNeeds("cpu", 1), 0.0)
    assert told == []


def test_free_places_are_counted_when_our_own_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, told, clock = busy_cluster(monkeypatch, 1000)
    needs = WorkerNeeds("cpu", 1)
    idle = [a_node(3, 0), a_node(2, 0, 2)]
    monkeypatch.setattr(cluster, "_alive", lambda: idle)

    def free() -> list[Node]:  # others have one place of each node; ours of the second is there after a while
        return [a_node(2, 0), a_node(1 if clock.now >= back else 0, 0, 2)]

    monkeypatch.setattr(cluster, "free_nodes", free)
    for ours_s, waits_s, found in ((0.0, 0.0, [2, 1]), (2.0, 2.0, [2, 1]), (1000.0, 5.0, [2, 0])):
        since, back = clock.now, clock.now + ours_s
        assert [*cluster.await_free(1, needs, 60.0).values()] == found
        assert clock.now - since == pytest.approx(waits_s, abs=0.5)
    assert told == []


@pytest.mark.parametrize("free_after_s", [30, 1000])
def test_free_places_on_the_wrong_nodes_are_waited_for_and_said_once(
    free_after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs, both = WorkerNeeds("cpu", 1), [a_node(2, 0), a_node(2, 0, 2)]
    cluster, told, clock = busy_cluster(monkeypatch, 1000)
    monkeypatch.setattr(cluster, "_alive", lambda: both)
    monkeypatch.setattr(cluster, "free_nodes", lambda: both[: 2 if clock.now >= 100 + free_after_s else 1])

    def found() -> dict[str, int]:
        return cluster.await_free(2, needs, 60.0, lambda free, there: len(free) == len(there))

    if free_after_s < 60:
        assert [*found().values()] == [2, 2]
    else:
        with pytest.raises(ClusterBusyError, match=r"busy for 60 s \(resources.wait_seconds\): no 2 free"):
            found()
    assert clock.now == pytest.approx(100 + min(free_after_s, 60), abs=0.5)
    (words,) = told
    assert words.startswith("waiting up to 60 s (resources.wait_seconds) for 2 free places for workers of 1")


def run_in(start: Callable[[], None]) -> None:
    """A trial whose worker group starts as ``start`` does."""

    class Starting(FakeRunner):
        def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
            start()
            pytest.fail("no group")

    plan = make_plan(study(), Resources("cpu", 2, "a CPU"))
    Groups(Starting(), TimeBudget(), plan).run(plan.search(plan.default()), lambda progress: None)


def test_a_cluster_that_stays_busy_ends_the_study_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, told, clock = busy_cluster(monkeypatch, 1000)
    asked = list[float]()

    def start() -> None:
        asked.append(clock.now)
        cluster.await_free(2, WorkerNeeds("cpu", 1), 60.0)

    with pytest.raises(
        ClusterBusyError, match=r"busy for 60 s \(resources.wait_seconds\): no 2 free places .*1 of 2"
    ):
        run_in(start)
    assert asked == [100.0]  # and not three times
    assert clock.now == pytest.approx(160, abs=1.1)
    assert len(told) == 1


@pytest.mark.parametrize("listed_for_s", [3, 40])
def test_a_node_that_is_lost_meanwhile_is_no_busy_cluster(
    listed_for_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker's place is not given back, and Ray lists it longer than free places are waited for."""
    (kept, lost), limit_s = (a_node(1, 0), a_node(1, 0, 2)), 20.0
    cluster, clock, asked = Joined(kept, lost), Clock(monkeypatch), list[float]()
    monkeypatch.setattr(cluster, "_alive", lambda: [kept, lost][: 2 if clock.now < 100 + listed_for_s else 1])
    monkeypatch.setattr(cluster, "free_nodes", lambda: [kept])

    def ask(nodes: list[Node], function: Any) -> list[Answered[str]]:
        clock.now = 100 + listed_for_s  # by then Ray has given it up, and with it what was asked
        return [Answered(node, error="gone" if node is lost else None) for node in nodes]

    monkeypatch.setattr("raybench.launch.cluster.on_each_node", ask)

    def start() -> None:
        asked.append(clock.now)
        cluster.refuse_unplaceable(2, WorkerNeeds("cpu", 1))
        cluster.await_free(2, WorkerNeeds("cpu", 1), limit_s)

    with pytest.raises(GroupLostError, match="nodes are gone: ") as told:
        start()
    assert not isinstance(told.value, ClusterBusyError)
    clock.now = 100
    with pytest.raises(NoRoomError) as refused:  # asked again, and the study goes on where it fits
        run_in(start)
    assert refused.value.places == 1
    assert asked == pytest.approx([100.0, 100.0, 100.0 + listed_for_s])


def test_waiting_has_an_end() -> None:
    told = list[str]()
    Joined(a_node(1, 0)).await_places(2, WorkerNeeds("cpu", 1), 0.0, told.append)
    assert told == []


def test_a_cluster_of_its_own_is_described_without_ray() -> None:
    found = Cluster().resources(WorkerNeeds("cpu", 1))
    assert isinstance(found, Resources)
    assert found.num_nodes == 1


@pytest.mark.parametrize(("cores", "cpus", "places"), [(4, 1, 4), (4, 2, 2), (16, 1, 8), (1, 2, 0)])
def test_gpus_of_this_machine_count_as_far_as_they_have_cores(
    cores: int, cpus: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ray will place the workers: ``srun --gpus=8`` with few cores a task."""
    monkeypatch.setattr(gpus, "gpu_names", lambda: ["H200"] * 8)
    monkeypatch.setattr(host, "usable_cores", lambda: cores)
    found = Cluster(address="local").resources(WorkerNeeds("cuda", cpus))
    assert (found.num_devices, found.num_gpus) == (places, 8)


def test_gpus_of_a_joined_cluster_that_are_not_measured_are_refused_by_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ask(nodes: list[Node], function: Any, *arguments: object) -> list[Answered[Any]]:
        sliced = {"node-2": "MIG is on"}
        if function is gpus.unsupported:
            return [Answered(node, sliced.get(node.hostname)) for node in nodes]
        return [Answered(node, function(*arguments)) for node in nodes]

    monkeypatch.setattr("raybench.launch.cluster.on_each_node", ask)
    cluster = Joined(a_node(2, 2), a_node(2, 2, 2))
    with pytest.raises(RequestError) as told:
        cluster.resources(WorkerNeeds("cuda", 1))
    assert told.value.problems == ("node-2 (10.0.0.2): MIG is on",)
    assert cluster.resources(WorkerNeeds("cpu", 1)).num_devices == 4


# --- what travels


def test_raybench_travels_and_nothing_else() -> None:
    travelling = runtime_environment(MLPSpec(name="mlp"), None)
    assert travelling == {"py_modules": [str(Path(raybench.__file__).parent)]}


@pytest.mark.parametrize("is_package", [False, True])
def test_a_factorys_module_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_package: bool) -> None:
    name = f"travelling_{is_package}".lower()
    place = tmp_path / name if is_package else tmp_path / f"{name}.py"
    if is_package:
        place.mkdir()
        (place / "__init__.py").touch()
        (place / "inner.py").touch()
    else:
        place.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = FactorySpec(factory=f"{name}{'.inner' if is_package else ''}:build")
    assert runtime_environment(workload, None)["py_modules"][1:] == [str(place)]
    assert name not in sys.modules  # looked up, not run
    with_folder = runtime_environment(workload, tmp_path)
    assert (with_folder["working_dir"], len(with_folder["py_modules"])) == (str(tmp_path), 1)


@pytest.mark.parametrize("factory", ["torch.nn:Linear", "json:loads", "there_is_no_such_module:build"])
def test_what_is_installed_stays(factory: str) -> None:
    assert len(runtime_environment(FactorySpec(factory=factory), None)["py_modules"]) == 1
