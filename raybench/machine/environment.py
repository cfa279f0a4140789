"""The machine and the software that a measurement was made with."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

import raybench
from raybench.errors import printable
from raybench.machine import gpus, host
from raybench.machine.host import DeviceKind
from raybench.machine.network import rdma_devices
from raybench.spec.user_input import flat

PACKAGES = (
    "torch",
    "torchvision",
    "ray",
    "optuna",
    "transformers",
    "datasets",
    "pandas",
    "numpy",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of natural logarithms of step times, beside the noise of blocks."""

    trial: float  # common to what one trial measures
    unit: float  # of one unit in one trial
    start: float  # common to one start of the workers
    start_unit: float  # of one unit in one start


class Environment(gpus.Graphics):
    """What may have an influence on a measurement. None and empty: the machine does not tell."""

    hostname: str = Field(description="name of the host")
    os: str = Field(description="name and version of the distribution")
    kernel: str = Field(description="release of the kernel")
    cpu_model: str = Field(description="name of the processor")
    cores: int = Field(description="logical cores of the host")
    usable_cores: int = Field(description="cores that affinity and the container's quota leave, whole ones")
    sockets: int | None = Field(None, description="processors")
    numa_nodes: int | None = Field(None, description="NUMA nodes")
    memory_bytes: int = Field(description="main memory of the host, in bytes")
    memory_limit_bytes: int | None = Field(
        None, description="the container's limit, in bytes; none: no limit"
    )
    governor: str | None = Field(None, description="frequency governor of core 0")
    clock_mhz: float | None = Field(None, description="clock of core 0 when the study began, in MHz")
    python: str = Field(description="version of Python")
    packages: dict[str, str] = Field(default_factory=dict, description="versions of the packages installed")
    rdma_devices: tuple[str, ...] = Field((), description="adapters of InfiniBand, RoCE or EFA")
    commit: str | None = Field(None, description="git commit of raybench's checkout")
    dirty: bool | None = Field(None, description="whether that checkout had uncommitted changes")
    variables: dict[str, str] = Field(default_factory=dict, description="relevant environment variables")
    other_variables: tuple[str, ...] = Field(
        (), description="names of those whose values may be secret, and of Ray's and Slurm's"
    )
    spreads: Spreads | None = Field(
        None, description="what earlier studies here have shown of how much trials and starts differ"
    )
    nodes: tuple[Environment, ...] = Field(
        (), description="of a cluster that was joined: every node that can work; the rest is of the first one"
    )

    @property
    def every_node(self) -> tuple[Environment, ...]:
        """The nodes that can work: of a cluster, or this machine alone."""
        return self.nodes or (self,)

    def device_name(self, device: DeviceKind) -> str:
        """What its devices are called."""
        if device == "cpu":
            return self.cpu_model
        return self.gpus[0].name if self.gpus else "no GPU"


def capture() -> Environment:
    """The machine as it is now; takes some 50 ms and imports neither torch nor Ray."""
    commit, dirty = _checkout()
    variables, other_variables = relevant_variables(os.environ)
    return Environment(
        **dict(gpus.graphics()),
        hostname=socket.gethostname(),
        os=_distribution(),
        kernel=platform.release(),
        cpu_model=host.cpu_model(),
        cores=os.cpu_count() or 1,
        usable_cores=host.usable_cores(),
        sockets=host.sockets(),
        numa_nodes=host.numa_nodes(),
        memory_bytes=host.total_memory_bytes(),
        memory_limit_bytes=host.memory_limit_bytes(),
        governor=host.governor(),
        clock_mhz=host.clock_mhz(),
        python=platform.python_version(),
        packages=versions(),
        rdma_devices=rdma_devices(),
        commit=commit,
        dirty=dirty,
        variables=variables,
        other_variables=other_variables,
    )


LONGEST_VALUE = 500  # characters
# Libraries whose variables change timing; of those of the cluster, which may name people, the names alone.
PREFIXES = ("NCCL_", "GLOO_", "OMP_", "KMP_", "MKL_", "CUDA_", "TORCH_")
CLUSTER_PREFIXES = ("RAY_", "SLURM_")
_SECRET_NAME = re.compile(
    r"token|(?<!NCCL_IB_P)key|secret|pass|pwd|cred|auth|bearer|licen[cs]e|signature", re.IGNORECASE
)
# an address with a password in it, a query with a token, a document that may hold anything, a token alone
_SECRET_VALUE = re.compile(
    r"://[^/\s]*@|(token|key|secret|password|auth)\w*=|[{}]"
    r"|^(hf_|ghp_|gho_|github_|sk-|xox)|^(?=.*\d)[A-Za-z0-9+=_-]{32,}$",
    re.IGNORECASE,
)


def relevant_variables(environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables that a measurement may depend on: values by name, and the names of those kept to themselves.

    Never a secret: in doubt a value is left out.
    """
    shown, others = dict[str, str](), list[str]()
    for name, value in sorted(environ.items()):
        is_secret = _SECRET_NAME.search(name) or _SECRET_VALUE.search(value)
        if name.startswith(PREFIXES) and not is_secret:
            shown[printable(name)] = printable(value, LONGEST_VALUE)
        elif name.startswith(PREFIXES + CLUSTER_PREFIXES):
            others.append(printable(name))
    return shown, tuple(others)


def of_nodes(nodes: Sequence[Environment]) -> Environment:
    """What a study on these nodes depends on; of one node it is that node's own."""
    first, *others = nodes
    return first.model_copy(update={"nodes": tuple(nodes)}) if others else first


def versions() -> dict[str, str]:
    """Of the packages that measurements depend on, as far as they are installed."""
    found = {name: host.installed_version(name) for name in PACKAGES}
    return {"raybench": raybench.__version__} | {name: each for name, each in found.items() if each}


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _checkout() -> tuple[str | None, bool | None]:
    """Commit and dirtiness of the checkout that raybench runs from; (None, None) for an installed one."""
    root = Path(raybench.__file__).parent.parent
    if not (root / ".git").exists():
        return None, None
    # No lock and no index refresh: another git may be at work in the same checkout. No tag in its place.
    describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    command = ["git", "--no-optional-locks", "-C", str(root), *describe]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):  # a checkout without a commit, or no git
        return None, None
    commit, _, dirty = done.stdout.strip().partition("-")
    return commit, bool(dirty)


# Where things are, what is logged, which job it is: nothing that changes how fast a step is.
_NO_TIMING = re.compile(
    r"(RAY_|SLURM_|CUDA_(HOME|PATH|ROOT|CACHE_PATH|VERSION|VISIBLE_DEVICES|BIN_PATH|TOOLKIT)"
    r"|CUDA_MPS_(PIPE|LOG)_DIRECTORY|TORCH_(HOME|LOGS|TRACE|EXTENSIONS_DIR|SHOW_CPP_STACKTRACES)"
    r"|TORCH_NCCL_DEBUG_INFO_|NCCL_(DEBUG|VERSION|COMM_ID|HOSTID))"
)
MOST_NAMES = 4
_MEMORY_TOLERANCE = 0.01  # a kernel's update reserves another few MB


def unlike_nodes(environment: Environment) -> list[str]:
    """What differs between nodes and may make one of them slower, a line each: key, values, who has which."""
    nodes = environment.every_node
    lines = []
    for key, values in _unlike(nodes).items():
        names: dict[str, list[str]] = {}
        for node, value in zip(nodes, values, strict=True):
            names.setdefault(_word(value), []).append(node.hostname)
        lines.append(f"{key}: {', '.join(f'{value} on {few(who)}' for value, who in names.items())}")
    return lines


def differences(before: Environment, now: Environment, *, may_lack_nodes: bool = False) -> list[str]:
    """What makes measurements in the two incomparable, a line each: ``key: A before, B now``.

    Each node of now is held against the most alike before that is left: a cluster gives them in any order.

    Hardware, limits, versions and variables that change timing count. The name of the host does not
    (a cluster gives another of the same nodes), nor the commit, nor the kernel's release, nor the clock,
    which each round records.
    """
    old, new = list(before.every_node), now.every_node
    if len(new) > len(old) or (len(new) < len(old) and not may_lack_nodes):
        return [f"nodes: {len(old)} before, {len(new)} now"]
    lines = []
    for node in new:
        found = [_differences(each, node) for each in old]
        nearest = min(range(len(old)), key=lambda index: len(found[index]))
        lines += found[nearest]
        del old[nearest]
    return list(dict.fromkeys(lines))


def _differences(before: Environment, now: Environment) -> list[str]:
    found = _unlike((before, now)).items()
    return [f"{key}: {_word(old)} before, {_word(new)} now" for key, (old, new) in found]


def _unlike(nodes: Sequence[Environment]) -> dict[str, tuple[object, ...]]:
    found, sizes = differing([comparable(node) for node in nodes]), [node.memory_bytes for node in nodes]
    if max(sizes) - min(sizes) <= _MEMORY_TOLERANCE * max(sizes):
        found.pop("memory_bytes", None)
    return found


def differing(sides: Sequence[Mapping[str, object]]) -> dict[str, tuple[object, ...]]:
    """What is not the same on all sides, by name, a value for each side; None where one has it not."""
    names = dict.fromkeys(name for side in sides for name in side)
    values = {name: tuple(side.get(name) for side in sides) for name in names}
    return {name: each for name, each in values.items() if any(value != each[0] for value in each)}


def _word(value: object) -> str:
    return "none" if value is None else str(value)


def few(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


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
    more = ("governor", "python", "driver_version", "cuda_version", "packages")
    # the same model with the same limits in the same kind of slot: measurements compare
    not_compared = {"compute_capability", "pci_bus_id", "cores_near", "is_exclusive", "is_sliced"}
    found: dict[str, object] = {name: getattr(environment, name) for name in (*names, *more)}
    found["number of GPUs"] = len(environment.gpus)
    for index, gpu in enumerate(environment.gpus):
        found[f"gpus[{index}]"] = gpu.model_dump(exclude=not_compared)
    for index, links in enumerate(environment.gpu_links):
        found[f"gpu_links[{index}]"] = " ".join(links)
    variables = {**environment.variables, **dict.fromkeys(environment.other_variables, "set")}
    found["variables"] = {name: value for name, value in variables.items() if not _NO_TIMING.match(name)}
    return dict(flat(found))
