"""The Ray cluster that a study runs on: the one whose address is given, or a local one of its own."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from raybench.errors import RequestError
from raybench.launch import signals
from raybench.machine import cores, gpus
from raybench.machine.resources import Resources

KILLED_S = 5.0  # the kernel takes a moment to free the memory of large processes
# Workers as important as a program started by hand, and nobody to watch for nodes that are taken away:
# each process of Ray's takes nearly a hundredth of a core, from the workers where no core is spare.
OF_A_LOCAL_CLUSTER = {"RAY_worker_niceness": "0", "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}
TOKEN_FILE = Path("~/.ray/auth_token")


@dataclass(frozen=True)
class _Node:
    cpus: float
    gpus: float


class Cluster:
    """Connects to Ray once; a local cluster is started for the study and ends with it."""

    def __init__(
        self,
        *,
        device: str,
        cpus_per_worker: int,
        address: str | None = None,
        working_dir: str | None = None,
    ) -> None:
        self._device, self._cpus = device, cpus_per_worker
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        self._working_dir = working_dir
        self._oversubscribed: int | None = None
        self._on_connect: Callable[[str], None] = lambda words: None
        self._connected = False
        self._dashboard = ""

    @property
    def is_local(self) -> bool:
        """Whether the cluster is one of our own on this machine."""
        return self._address is None or self._address == "local"

    def resources(self) -> Resources:
        """Devices of the cluster; a local one is described without starting it."""
        if self.is_local and not self._connected:
            if self._device == "cuda":
                names = gpus.gpu_names()
                return Resources("cuda", len(names), names[0] if names else "no GPU")
            return Resources("cpu", cores.usable_cores() // self._cpus, cores.cpu_model())
        self.connect()
        nodes = self._nodes()
        name = self._accelerator() if self._device == "cuda" else cores.cpu_model()
        return Resources(self._device, self._places(nodes), name, len(nodes))

    def places(self) -> dict[str, int]:
        """How many workers each node has room for, by Ray's id of the node; connected only."""
        import ray

        alive = [node for node in ray.nodes() if node["Alive"]]
        return {node["NodeID"]: self._places([_node(node)]) for node in alive}

    def prepare(
        self, *, oversubscribed_workers: int | None = None, on_connect: Callable[[str], None]
    ) -> None:
        """What a plan asks, once it is made: to count its workers had to join the cluster, if there is one.

        ``oversubscribed_workers``: so many, however few cores there are. ``on_connect`` is told where the
        dashboard is: now, or when Ray has started.
        """
        self._oversubscribed, self._on_connect = oversubscribed_workers, on_connect
        if self._connected:
            on_connect(self._dashboard)

    def connect(self) -> None:
        """Start or join Ray. Raises ``RequestError`` where the address does not answer."""
        if self._connected:
            return
        # a late call after the end would otherwise start a new cluster of its own
        os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
        os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if self.is_local:
            for name, value in OF_A_LOCAL_CLUSTER.items():
                os.environ.setdefault(name, value)
        import ray

        runtime_env = {"working_dir": self._working_dir} if self._working_dir else None
        common: dict[str, Any] = {
            "log_to_driver": False,
            "logging_level": logging.ERROR,
            "runtime_env": runtime_env,
        }
        self._connected = True
        try:
            context = self._in_thread(lambda: ray.init(**common, **self._where()))
        except (ConnectionError, ValueError, RuntimeError) as error:
            self._connected = False
            line = str(error).strip().splitlines()[0]
            raise RequestError(
                f"--address: a Ray cluster that answers: {line}{_token_words()} (received {self._address!r})"
            ) from error
        signals.take_back()
        self._dashboard = _dashboard_words(getattr(context, "dashboard_url", None))
        self._on_connect(self._dashboard)

    def refuse_unplaceable(self, world_size: int) -> None:
        """Raise ``RequestError`` where the workers cannot stand: Ray would try for ever."""
        nodes = self._nodes()
        places = self._places(nodes)
        if world_size > places:
            cuda = self._device == "cuda"
            shape = "+".join(f"{node.gpus if cuda else node.cpus:g}" for node in nodes)
            each = f"{self._cpus} cores{' and a GPU' if cuda else ''}"
            raise RequestError(
                f"scaling.world_sizes: at most {places} workers of {each} fit into {len(nodes)} nodes "
                f"of {shape} {'GPUs' if cuda else 'cores'} (received {world_size})"
            )

    def close(self) -> None:
        """Leave Ray; a local cluster ends."""
        if not self._connected:
            return
        import ray

        self._connected = False
        ray.shutdown()
        signals.take_back()  # Ray leaves the system's own, which end the process

    def abandon(self) -> None:
        """End a local cluster by ending its processes, all of them children of this one.

        ``ray.shutdown`` waits for calls under way in other threads, or aborts the process under them. A
        cluster that was joined ends the workers by itself once this process is gone.
        """
        if not self._connected or not self.is_local:
            return
        children = psutil.Process().children(recursive=True)
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                pass
        psutil.wait_procs(children, timeout=KILLED_S)

    def _in_thread(self, start: Callable[[], Any]) -> Any:
        """Call ``start`` outside the main thread, where Ray puts a handler of SIGTERM that exits half-way.

        The thread lives on: the kernel ends Ray's processes with the thread that started them.
        """
        result: Future[Any] = Future()

        def run() -> None:
            try:
                result.set_result(start())
            except BaseException as error:
                result.set_exception(error)
            threading.Event().wait()

        threading.Thread(target=run, daemon=True, name="raybench-ray").start()
        return result.result()

    def _where(self) -> dict[str, Any]:
        if not self.is_local:
            return {"address": self._address}
        num_cpus = cores.usable_cores()
        if self._oversubscribed:
            num_cpus = max(num_cpus, self._oversubscribed * self._cpus)
        where: dict[str, Any] = {
            "address": "local",
            "num_cpus": num_cpus,
            "include_dashboard": True,
            "dashboard_host": "127.0.0.1",
        }
        if self._device == "cpu":
            where["num_gpus"] = 0
        return where

    def _nodes(self) -> list[_Node]:
        import ray

        return [_node(node) for node in ray.nodes() if node["Alive"]]

    def _places(self, nodes: list[_Node]) -> int:
        if self._device == "cuda":
            return int(sum(min(node.gpus, node.cpus // self._cpus) for node in nodes))
        return int(sum(node.cpus // self._cpus for node in nodes))

    def _accelerator(self) -> str:
        import ray

        prefix = "accelerator_type:"
        for node in ray.nodes():
            for name in node["Resources"]:
                if name.startswith(prefix):
                    return str(name.removeprefix(prefix))
        return "GPU"


def _node(found: dict[str, Any]) -> _Node:
    """A node as ``ray.nodes()`` describes it."""
    resources = found["Resources"]
    return _Node(resources.get("CPU", 0.0), resources.get("GPU", 0.0))


def _token_words() -> str:
    """What to try: a head that has a token asks for it, and a client that was told no mode sends none."""
    if os.environ.get("RAY_AUTH_MODE") or not TOKEN_FILE.expanduser().exists():
        return ""
    return f"; if it asks for the token in {TOKEN_FILE}, set RAY_AUTH_MODE=token"


def _dashboard_words(url: str | None) -> str:
    """The dashboard's address, and what its token needs."""
    if not url:
        return "Ray dashboard: none"
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if mode == "disabled" or (not mode and not TOKEN_FILE.expanduser().exists()):
        return f"Ray dashboard: http://{url}"
    return f"Ray dashboard: http://{url} (asks for the token in {TOKEN_FILE})"


def import_path() -> list[str]:
    """Where the driver finds modules: workers must find a study's factory there too."""
    return [str(Path(path).resolve()) for path in sys.path if path] + [str(Path.cwd())]
