"""The Ray cluster that a study runs on: the one whose address is given, or a local one of its own."""

from __future__ import annotations

import logging
import math
import os
import platform
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar, cast

import psutil

from raybench.errors import ClusterBusyError, GroupLostError, Interrupted, NoRoomError, RequestError
from raybench.launch import signals
from raybench.launch.liveness import RayAlive, await_end, end_callers, in_thread
from raybench.launch.nodes import LONGEST_ERROR, Node, alive_nodes, free_nodes, on_each_node
from raybench.launch.runtime_env import runtime_environment
from raybench.machine import gpus, host, network
from raybench.machine.child import folder_of
from raybench.machine.environment import Environment, capture
from raybench.machine.host import DeviceKind, Resources, WorkerNeeds
from raybench.spec.workloads import WorkloadSpec

ANSWERS_S = 30.0  # a head that is just being started; Ray itself tries for minutes, without a word
ONE_TRY_S = 3.0
ASK_AGAIN_S = 0.5
TAKE_BACK_S = 0.02  # between looks for signal handlers, while Ray ends
# What every gRPC server answers, before it asks for a token: HTTP/2's preface and an empty frame of settings
# (RFC 9113, 3.4), whose type stands in the fourth byte. A head that is stopped takes a connection, and says
# nothing; with what is no head, as a dashboard's port, Ray itself tries for minutes.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS, FRAME_BYTES = 4, 9


def await_head(address: str, limit_s: float = ANSWERS_S) -> None:
    """Wait until a head is at ``HOST:PORT``. Raises ``RequestError`` after ``limit_s``.

    Nothing is looked at where it is another address, as ``auto``, or Ray speaks TLS, which a head answers
    with certificates only.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return
    until = monotonic() + limit_s
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=ONE_TRY_S) as connection:
                connection.sendall(HELLO)
                frame = connection.recv(FRAME_BYTES, socket.MSG_WAITALL)
            if len(frame) < FRAME_BYTES or frame[3] != SETTINGS:
                raise OSError("what answers there is not a Ray cluster's head")
            return
        except (OSError, OverflowError) as error:
            if monotonic() >= until:
                raise RequestError(
                    f"--address: a Ray cluster that answers: {getattr(error, 'strerror', None) or error}, "
                    f"tried for {limit_s:g} s (received {address!r})"
                ) from error
        signals.check()
        sleep(ASK_AGAIN_S)


LOOK_AGAIN_S = 1.0  # for nodes that come late
GIVEN_BACK_S = 5.0  # Ray takes a moment to give back the places of workers that are gone
GIVEN_BACK_LOOK_S = 0.2
KILLED_S = 5.0  # the kernel takes a moment to free the memory of large processes
# Workers as important as a program started by hand, and nobody to watch for nodes that are taken away:
# each process of Ray's takes nearly a hundredth of a core, from the workers where no core is spare; so of
# the workers that Ray starts before anything asks for one, one would wait to the end.
# The third makes Ray take the loopback address, on Linux too, and then it listens there only: nobody on the
# network is to reach a cluster that no other node joins. It is read when ray is first imported, so it is set
# before the modules are that import it. The last: an interrupt ends Ray's processes at once, and Ray's core
# ends the driver so many seconds after that, which may still write a report; 60 s, Ray's own, were too few.
OF_A_LOCAL_CLUSTER = {
    "RAY_worker_niceness": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
}
TOO_LATE = "timed out during startup"  # what Ray says of a node that busy cores kept from starting in 30 s
NAME = "raybench"  # what is measured without a study's name
CLIENT = "ray://"  # Ray Client's addresses

Answer = TypeVar("Answer")
Suffice = Callable[[Mapping[str, int], Mapping[str, int]], bool]


class Cluster:
    """Connects to Ray once, for plan and run; a local cluster is started for the study and ends with it.

    Of a cluster that was joined every answer comes from its nodes: the driver may have no GPU, or no core to
    give.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        working_dir: Path | None = None,
        workload: WorkloadSpec | None = None,
        name: str = NAME,
    ) -> None:
        """``workload``: its factory's module travels; ``name``: the job's, in Ray's dashboard.

        Raises ``RequestError`` for Ray Client's addresses.
        """
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        if self._address is not None and self._address.startswith(CLIENT):
            raise RequestError(
                "--address: HOST:PORT of the head, or auto on one of its nodes; Ray Client cannot run a "
                f"study: start it there, or with `ray job submit` (received {self._address!r})"
            )
        self.is_local = self._address in (None, "local")  # one of our own, on this machine
        self._working_dir, self._workload, self._name = working_dir, workload, name
        self._needs: WorkerNeeds | None = None
        self._oversubscribed = 0
        self._waited_in_vain = False  # for nodes
        self._used_by_others = math.inf  # places, when none of our own were used; at first none of them are
        self._tell: Callable[[str], None] = lambda words: None
        self._connected = False
        self._dashboard = ""
        self._environments: dict[WorkerNeeds, list[Environment]] = {}
        self._set: list[str] = []  # variables of this process that are for Ray's processes
        self._not_rays = frozenset[int]()  # children of this process before Ray was started
        self._alive_watch = RayAlive()

    def device_kind(self) -> DeviceKind:
        """What ``device = "auto"`` stands for: GPUs where any node has one."""
        if self.is_local:
            _refuse_unsupported()
            return "cuda" if gpus.gpu_names() else "cpu"
        return "cuda" if any(node.gpus >= 1 for node in self._alive()) else "cpu"

    def resources(self, needs: WorkerNeeds) -> Resources:
        """Devices of the cluster; a local one is described without starting it."""
        if self.is_local and needs.device == "cuda":
            _refuse_unsupported()
        here = Node("", "", "", host.usable_cores(), len(gpus.gpu_names()))  # as Ray will count it
        nodes = [here] if self.is_local else self.working_nodes(needs)
        names = ", ".join(dict.fromkeys(each.device_name(needs.device) for each in self.environments(needs)))
        places = sum(node.places(needs) for node in nodes)
        num_gpus = sum(int(node.gpus) for node in nodes) if needs.device == "cuda" else 0
        return Resources(needs.device, places, names, len(nodes), num_gpus)

    def working_nodes(self, needs: WorkerNeeds, *, fits: bool = True) -> list[Node]:
        """Of a cluster that was joined: those on which a worker fits, or else (a head, say) the others."""
        return [node for node in self._alive() if bool(node.places(needs)) is fits]

    def free_nodes(self) -> list[Node]:
        """Every node, with the cores and GPUs alone that nobody uses now."""
        self.connect()
        return _answer_of(free_nodes)

    def environments(self, needs: WorkerNeeds) -> list[Environment]:
        """What measurements on each working node depend on; of this machine on a local cluster.

        Raises ``RequestError`` where a node does not answer, names an interface that it does not have, or has
        GPUs that are not measured.
        """
        if self.is_local and needs not in self._environments:
            self._environments[needs] = [capture()]
        if needs not in self._environments:
            working = self.working_nodes(needs)
            here, nodes = capture(), self.ask(working, capture)
            unknown = zip(working, self.ask(working, network.unknown_interfaces, needs.device), strict=True)
            refused = [f"{node}: {line}" for node, lines in unknown for line in lines]
            if needs.device == "cuda":
                unsupported = zip(working, self.ask(working, gpus.unsupported), strict=True)
                refused += [f"{node}: {line}" for node, line in unsupported if line]
            if refused:
                raise RequestError(*refused)
            self._environments[needs] = [_as_workers_find_it(node, here) for node in nodes]
        return self._environments[needs]

    def ask(self, nodes: Sequence[Node], function: Callable[..., Answer], *arguments: object) -> list[Answer]:
        """What ``function`` returns on each node. Raises ``RequestError`` with a line for each that fails."""
        answers = on_each_node(nodes, function, *arguments)
        failed = [f"{each.node}: {each.error}" for each in answers if each.error is not None]
        if failed:
            raise RequestError("--address: nodes that can run raybench", *failed)
        return [cast(Answer, each.value) for each in answers]

    def await_places(
        self, wanted: int, needs: WorkerNeeds, limit_s: float, tell: Callable[[str], None] | None = None
    ) -> None:
        """Wait until ``wanted`` workers fit, for nodes that come late or back; no longer than ``limit_s``.

        Once in vain is enough: what is left of a study goes on without them. Whoever goes on says what is
        missing. Without ``tell`` it is said where the dashboard was.
        """
        if self.is_local:
            return
        tell = tell or self._tell
        until, told = monotonic() + (0.0 if self._waited_in_vain else limit_s), False
        while (there := sum(self.places(needs).values())) < wanted and monotonic() < until:
            if not told:
                places = f"{wanted} places for workers of {needs}: {there} there now"
                tell(f"waiting up to {limit_s:g} s for {places}")
                told = True
            signals.check()
            sleep(LOOK_AGAIN_S)
        self._waited_in_vain = self._waited_in_vain or there < wanted

    def await_free(
        self, wanted: int, needs: WorkerNeeds, limit_s: float, suffice: Suffice = lambda free, there: True
    ) -> dict[str, int]:
        """The workers that fit on each node beside what others run, once ``wanted`` can start.

        Ray would wait in silence. ``suffice``: whether those that are free, of those that there are, are on
        the right nodes. What a group of our own had is waited for, a moment long. Raises ``ClusterBusyError``
        after ``limit_s``, that moment apart; ``GroupLostError`` where a node is gone meanwhile.
        """
        if self.is_local:
            return self.places(needs)
        began, told = monotonic(), False
        while True:
            free = {node.node_id: node.places(needs) for node in self.free_nodes()}
            there, waited_s = self.places(needs), monotonic() - began
            num_free, num_there = sum(free.values()), sum(there.values())
            if num_there < wanted:
                raise GroupLostError(f"nodes are gone: {num_there} of {wanted} places for workers of {needs}")
            if num_free >= wanted and suffice(free, there):
                others = num_there - num_free
                if others <= self._used_by_others or waited_s >= GIVEN_BACK_S:
                    self._used_by_others = others
                    return free
            else:
                words = f"{wanted} free places for workers of {needs} on the nodes of a trial"
                words += f": {num_free} of {num_there} are free, others use the rest"
                told = self._busy(needs, waited_s, limit_s, words, told=told)
            signals.check()
            sleep(GIVEN_BACK_LOOK_S if waited_s < GIVEN_BACK_S else LOOK_AGAIN_S)

    def _busy(self, needs: WorkerNeeds, waited_s: float, limit_s: float, missing: str, *, told: bool) -> bool:
        """Whether the user was told of the wait for places that others use.

        Raises ``ClusterBusyError`` after ``limit_s``, or ``GroupLostError`` where nodes do not answer: Ray
        lists a node that is gone, its places in use, until it has failed checks for up to a minute.
        """
        limit = f"{limit_s:g} s (resources.wait_seconds)"
        if waited_s >= max(limit_s, GIVEN_BACK_S):
            answers = on_each_node(self.working_nodes(needs), platform.node)
            silent = [f"{each.node}: {each.error}" for each in answers if each.error is not None]
            if silent:
                raise GroupLostError(f"nodes are gone: {'; '.join(silent)}")
            raise ClusterBusyError(f"the cluster was busy for {limit}: no {missing}")
        if waited_s >= GIVEN_BACK_S and not told:
            self._tell(f"waiting up to {limit} for {missing}")
            return True
        return told

    def places(self, needs: WorkerNeeds) -> dict[str, int]:
        """The workers that fit on each node that there is now, by Ray's id of the node."""
        return {node.node_id: node.places(needs) for node in self._alive()}

    def prepare(
        self, needs: WorkerNeeds, *, oversubscribed_workers: int = 0, tell: Callable[[str], None]
    ) -> None:
        """What a plan asks of the cluster, once it is made: of a local one how it is to be started.

        ``oversubscribed_workers``: so many, however few cores there are. ``tell`` hears where the dashboard
        is, now or when Ray has started, and of nodes that are waited for.
        """
        self._needs, self._oversubscribed, self._tell = needs, oversubscribed_workers, tell
        self._set_variables()
        if self._connected:
            tell(self._dashboard)

    def connect(self, tries: int = 2) -> None:
        """Start or join Ray. Raises ``RequestError`` where the address does not answer."""
        if self._connected:
            return
        if self.is_local:  # its workers have this process's variables
            refused = network.unknown_interfaces(self._needs.device if self._needs else "cpu")
            if refused:
                raise RequestError(*refused)
        else:
            await_head(str(self._address))
        # a late call after the end would otherwise start a new cluster of its own
        os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
        os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
        os.environ.setdefault("RAY_TRAIN_ENABLE_STATE_TRACKING", "1")  # the dashboard's page of Train
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Ray sets it in its thread, while torch is imported here: a variable that is new there may move all
        # others while a library reads one, which ends the process
        os.environ.setdefault("PYTHONBREAKPOINT", "ray.util.rpdb._driver_set_trace")
        self._set_variables()
        import ray

        job = ray.job_config.JobConfig(metadata={"job_name": self._name})
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "job_config": job}
        self._connected = True
        self._not_rays = frozenset(child.pid for child in psutil.Process().children())
        try:
            with signals.hangup_ignored():
                start = partial(ray.init, **common, **self._where())
                starting = in_thread("raybench-ray", start, lives_on=True)
                if self.is_local:
                    with suppress(ImportError):  # which the first group tells
                        import ray.train.torch  # what it needs first: Ray's processes start meanwhile
                context = starting.result()
        except Interrupted:
            raise
        except Exception as error:  # a node that does not start in time is nothing more to Ray
            self.abandon()
            words = " ".join(str(error).split())[:LONGEST_ERROR]
            if TOO_LATE in words and tries > 1:  # by now its programs are in memory
                self._tell("Ray did not start within 30 s: once more")
                self.connect(tries - 1)
                return
            if self.is_local:
                raise RequestError(f"Ray did not start here: {words}") from error
            raise RequestError(
                f"--address: a Ray cluster that can be joined from here: {words} (received {self._address!r})"
            ) from error
        signals.take_back()
        self._alive_watch = RayAlive()
        if self.is_local:
            self._alive_watch.watch_children()
        else:
            self._alive_watch.watch_head(ray.get_runtime_context().gcs_address)
        url = getattr(context, "dashboard_url", None)
        self._dashboard = f"Ray dashboard: {f'http://{url}' if url else 'none'}"
        self._tell(self._dashboard)

    def _set_variables(self) -> None:
        """Those of a local cluster, until it is closed: a cluster that is joined later has its own."""
        missing = [name for name in OF_A_LOCAL_CLUSTER if self.is_local and name not in os.environ]
        for name in missing:
            os.environ[name] = OF_A_LOCAL_CLUSTER[name]
        self._set += missing

    def refuse_unplaceable(self, world_size: int, needs: WorkerNeeds) -> None:
        """Raise ``NoRoomError`` where the workers cannot stand: Ray would try for ever."""
        nodes = self._alive()
        places = sum(node.places(needs) for node in nodes)
        if world_size > places:
            shape = ", ".join(f"{node.cpus:g} cores and {node.gpus:g} GPUs" for node in nodes)
            raise NoRoomError(
                f"scaling.world_sizes: at most {places} workers of {needs} fit into {len(nodes)} nodes "
                f"of {shape} (received {world_size})",
                places,
            )

    def close(self) -> None:
        """Leave Ray; a local cluster ends."""
        while self._set:
            os.environ.pop(self._set.pop(), None)
        if not self._connected:
            return
        import ray

        self._connected = False
        self._alive_watch.stop()
        ends = in_thread("raybench-ray-ends", ray.shutdown)
        while not wait([ends], TAKE_BACK_S).done:
            signals.take_back()  # Ray leaves the system's own, which end the process, and waits for its own
        signals.take_back()
        ends.result()

    def abandon(self) -> None:
        """End a local cluster by ending its processes, all of them children of this one since it started.

        ``ray.shutdown`` waits for calls under way in other threads, or aborts the process under them. A
        cluster that was joined ends the workers by itself once this process is gone.
        """
        is_running, self._connected = self._connected, False  # Ray does not end in order any more
        self._alive_watch.stop()
        if not is_running or not self.is_local:
            return
        end_callers()  # their next call would end this process
        started = [child for child in psutil.Process().children() if child.pid not in self._not_rays]
        children = list(started)
        for child in started:
            with suppress(psutil.NoSuchProcess):
                children += child.children(recursive=True)
        folders = list[str]()
        for child in children:
            with suppress(psutil.Error):
                folders.append(folder_of(child.cmdline()))
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=KILLED_S)
        for folder in filter(None, folders):  # of scripts, which cannot remove them any more
            shutil.rmtree(folder, ignore_errors=True)

    def _where(self) -> dict[str, Any]:
        if not self.is_local:
            travelling = runtime_environment(self._workload, self._working_dir)
            return {"address": self._address, "runtime_env": travelling}
        num_cpus = host.usable_cores()
        if self._needs is not None:
            num_cpus = max(num_cpus, self._oversubscribed * self._needs.cpus)
        where: dict[str, Any] = {
            "address": "local",
            "num_cpus": num_cpus,
            "include_dashboard": True,
            "dashboard_host": "127.0.0.1",
        }
        if self._working_dir is not None:
            where["runtime_env"] = {"working_dir": str(self._working_dir)}
        if self._needs is not None and self._needs.device == "cpu":
            where["num_gpus"] = 0
        return where

    def _alive(self) -> list[Node]:
        """Every node of the cluster, also those that have no room for a worker."""
        self.connect()
        return _answer_of(alive_nodes)


def _refuse_unsupported() -> None:
    """Raise ``RequestError`` where this machine's GPUs are of a kind that is not measured."""
    why = gpus.unsupported()
    if why is not None:
        raise RequestError(why)


def _answer_of(ask: Callable[[], list[Node]]) -> list[Node]:
    """What the GCS answers. A call of Ray's waits a minute for one that is silent, then ends the process.

    So it waits in another thread, and this one for whatever ends the run.
    """
    answer = in_thread("raybench-gcs", ask)
    await_end(answer)
    return answer.result()


def _as_workers_find_it(node: Environment, driver: Environment) -> Environment:
    """``node`` as it was captured in a task of Ray's, with what that does not show as it is.

    What travelled has no checkout beside it, and a task without cores is told to use one thread.
    """
    variables = {name: value for name, value in node.variables.items() if name != "OMP_NUM_THREADS"}
    checkout = {"commit": driver.commit, "dirty": driver.dirty}
    return node.model_copy(update={**checkout, "variables": variables})
