"""A Ray cluster of several nodes on one machine: each a set of namespaces with its own link to a switch.

A node has its own network, host name, processes, and temporary directory of Ray; all share the machine's
cores and, but for what ``private`` names, its files. What its link can carry is set by tc's token bucket
filter, so that a figure measured over it has a known truth. Linux and root are needed; nothing outside the
namespaces is changed.

    python -m tests.support.local_nodes --nodes 4 --rate 1gbit -- python -m raybench.study scaling

runs the command on the first node with RAY_ADDRESS set, and ends every node with it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import psutil
import typer

SUBNET = "10.77.0"
PORT = 6379
LINK = "eth0"
OBJECT_STORE_BYTES = 128 * 2**20
START_S = 120.0  # until every node has joined
END_S = 10.0
BURST_S = 0.002  # what a token bucket lets through at once, at its rate
LEAST_BURST_BYTES = 256 * 1024  # some packets as large as the kernel makes them
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "tc", "mount")
# As on a local cluster of raybench's: by default Ray's workers get a thirtieth of a core that others want.
AS_IMPORTANT = {"RAY_worker_niceness": "0", "RAY_prestart_worker_first_driver": "0"}
# a node needs no program that looks for updates, and no token where nobody else can reach it
OF_RAY = {
    **AS_IMPORTANT,
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
    # that a node is gone is known after some 15 s; Ray's own times add up to a minute
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "4",
}

_JOINED = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
until = time.monotonic() + float(sys.argv[3])
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]):
    if time.monotonic() > until:
        sys.exit(1)
    time.sleep(0.2)
"""


def missing() -> str | None:
    """Why nodes cannot be had here; None where they can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not found (Debian: util-linux, iproute2)"
    done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return None if done.returncode == 0 else "this container may not make namespaces"


@dataclass
class LocalNode:
    """One node: the process that holds its namespaces, and its raylet."""

    number: int  # from 1 on; the first is the head
    holder: subprocess.Popen[bytes]
    init_pid: int
    raylet: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """Its host name."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """Its address."""
        return f"{SUBNET}.{self.number}"

    @property
    def port_of_switch(self) -> str:
        """The other end of its link."""
        return f"port{self.number}"


@dataclass
class LocalNodes:
    """``number`` nodes, the first with Ray's head; a context manager that ends them."""

    number: int
    cpus: int = 1  # that Ray counts on each node
    rate: str | None = None  # of every link, as tc writes it (100mbit, 1gbit); none: as fast as the kernel is
    private: Sequence[Path] = ()  # directories that all nodes but the first have empty, for themselves
    has_ray: bool = True
    burst_bytes: int = LEAST_BURST_BYTES  # that a link lets through at once after a pause, at least
    nodes: list[LocalNode] = field(default_factory=list)
    _switch: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        reason = missing()
        if reason is not None:
            raise RuntimeError(reason)
        self._folder = Path(tempfile.mkdtemp(prefix="raybench-nodes-"))
        (self._folder / "ray").mkdir()
        names = "".join(f"{SUBNET}.{n} node-{n}\n" for n in range(1, self.number + 1))
        (self._folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        try:
            self._switch, self._switch_pid = _namespaces("--net")
            self._in_switch("ip link add switch type bridge")
            self._in_switch("ip link set switch up")
            for number in range(1, self.number + 1):
                self.add_node(number)
            if self.has_ray:
                self.await_joined(self.number)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in reversed(self.nodes):
            self.end(node)
        if self._switch is not None:
            _end(self._switch)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> str:
        """Of Ray's head, as ``--address`` takes it."""
        return f"{SUBNET}.1:{PORT}"

    def add_node(self, number: int) -> LocalNode:
        """Make a node and start its raylet; it joins some seconds later."""
        node = LocalNode(number, *_namespaces("--net", "--uts", "--mount", "--pid", "--mount-proc"))
        self.nodes.append(node)
        port = node.port_of_switch
        self._in_switch(f"ip link add {port} type veth peer name {LINK} netns {node.init_pid}")
        self._in_switch(f"ip link set {port} master switch up")
        (self._folder / node.name).mkdir(exist_ok=True)
        for command in (
            "ip link set lo up",
            f"ip address add {node.address}/24 dev {LINK}",
            f"ip link set {LINK} up",
            f"hostname {node.name}",
            f"mount --bind {self._folder / node.name} {self._folder / 'ray'}",
            f"mount --bind {self._folder / 'hosts'} /etc/hosts",
            *(f"mount -t tmpfs none {path}" for path in self.private if number > 1),
        ):
            self.run(shlex.split(command), node)
        if self.rate is not None:
            self.set_rate(node, self.rate)
        if self.has_ray:
            self._start_raylet(node)
        return node

    def end(self, node: LocalNode) -> None:
        """End every process of a node at once, as a power failure would."""
        self.nodes.remove(node)
        _end(node.holder)
        if node.raylet is not None:
            node.raylet.wait(END_S)

    def set_rate(self, node: LocalNode, rate: str) -> None:
        """Of both directions of its link; of what the wire carries, headers included."""
        burst = max(self.burst_bytes, int(BURST_S * bits_per_s(rate) / 8))
        bucket = f"root tbf rate {rate} burst {burst} latency 100ms"
        self.run(shlex.split(f"tc qdisc replace dev {LINK} {bucket}"), node)
        self._in_switch(f"tc qdisc replace dev {node.port_of_switch} {bucket}")

    def set_link(self, node: LocalNode, *, up: bool) -> None:
        """Plug the node's link in, or pull it out."""
        self._in_switch(f"ip link set {node.port_of_switch} {'up' if up else 'down'}")

    def cut_switch(self) -> None:
        """Pull the plug of the switch: every node is alone."""
        self._in_switch("ip link set switch down")

    def await_joined(self, number: int) -> None:
        """Wait until so many nodes have joined. Raises ``RuntimeError`` where they have not in time."""
        arguments = [sys.executable, "-c", _JOINED, self.address, str(number), str(START_S)]
        done = self.popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait()
        if done != 0:
            raise RuntimeError(f"{number} nodes did not join within {START_S:g} s")

    def popen(
        self, command: Sequence[str], node: LocalNode | None = None, *, cwd: Path | None = None, **rest: Any
    ) -> subprocess.Popen[Any]:
        """Start a program on a node (the first), in ``cwd`` (the caller's), with ``RAY_ADDRESS`` set."""
        environment = {**os.environ, **OF_RAY, "RAY_ADDRESS": self.address, **rest.pop("env", {})}
        inner = f"cd {shlex.quote(str(cwd or Path.cwd()))} && exec {shlex.join(command)}"
        return subprocess.Popen(
            [*_enter((node or self.nodes[0]).init_pid), "sh", "-c", inner], env=environment, **rest
        )

    def run(self, command: Sequence[str], node: LocalNode) -> None:
        """A short command on a node. Raises ``RuntimeError`` with its words where it fails."""
        _run([*_enter(node.init_pid), *command])

    def _start_raylet(self, node: LocalNode) -> None:
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        start += ["--node-ip-address", node.address, "--num-cpus", str(self.cpus), "--num-gpus", "0"]
        start += ["--object-store-memory", str(OBJECT_STORE_BYTES), "--disable-usage-stats"]
        if node.number == 1:
            start += ["--head", "--port", str(PORT), "--include-dashboard", "false"]
            start += ["--temp-dir", str(self._folder / "ray")]
        else:
            start += ["--address", self.address]
        log = (self._folder / f"{node.name}.log").open("wb")
        with log:
            node.raylet = self.popen(start, node, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if node.number == 1:
            _await(lambda: (self._folder / node.name / "ray_current_cluster").exists(), "the head's start")

    def _in_switch(self, command: str) -> None:
        _run(["nsenter", "--target", str(self._switch_pid), "--net", *shlex.split(command)])


def bits_per_s(rate: str) -> float:
    """What tc's way of writing a rate means: bit, kbit, mbit, gbit. Raises ``ValueError`` for others."""
    for unit, factor in (("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)):
        if rate.endswith(unit):
            return float(rate.removesuffix(unit)) * factor
    raise ValueError(f"a rate such as 100mbit or 1gbit (received {rate!r})")


def _namespaces(*kinds: str) -> tuple[subprocess.Popen[bytes], int]:
    """A sleeping process in namespaces of its own, which end with it, and it with this process."""
    line = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        *kinds,
        "--fork",
        "--kill-child",
        "sleep",
        "infinity",
    ]
    holder = subprocess.Popen(line, stdin=subprocess.DEVNULL, start_new_session=True)
    found: list[psutil.Process] = []

    def asleep() -> bool:
        found[:] = psutil.Process(holder.pid).children()
        return bool(found) and found[0].name() == "sleep"

    _await(asleep, "namespaces")
    return holder, found[0].pid


def _enter(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net", "--uts", "--mount", "--pid", "--"]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip() or done.returncode}")


def _end(holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    holder.wait(END_S)


def _await(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + START_S
    while not done():
        if time.monotonic() > until:
            raise RuntimeError(f"{what}: not there after {START_S:g} s")
        time.sleep(0.05)


def main(
    command: Annotated[list[str], typer.Argument(help="What runs on the first node, after --.")],
    nodes: Annotated[int, typer.Option(min=1, max=32, help="How many.")] = 2,
    cpus: Annotated[int, typer.Option(min=1, help="Cores that Ray counts on each.")] = 1,
    rate: Annotated[str | None, typer.Option(help="Of each link, as 100mbit or 1gbit.")] = None,
    private: Annotated[list[Path] | None, typer.Option(help="Empty on all nodes but the first.")] = None,
) -> None:
    """Run a command on a Ray cluster of local namespaces."""
    try:
        if rate is not None:
            bits_per_s(rate)
        with LocalNodes(nodes, cpus=cpus, rate=rate, private=private or ()) as cluster:
            program = cluster.popen(command)
            try:
                code = program.wait()
            except KeyboardInterrupt:  # it has had the signal too, and may have a report to write
                code = program.wait()
    except (RuntimeError, ValueError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
