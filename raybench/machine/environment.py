"""The machine and the software that a measurement was made with."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

import raybench
from raybench.machine import cores, gpus, memory, variables
from raybench.machine.gpus import Gpu
from raybench.machine.resources import DeviceKind
from raybench.machine.virtualization import virtualization

PACKAGES = (
    "raybench",
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


class Environment(BaseModel):
    """What may have an influence on a measurement. None and empty: the machine does not tell."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    hostname: str = Field(description="name of the host")
    os: str = Field(description="name and version of the distribution")
    kernel: str = Field(description="release of the kernel")
    virtualization: str | None = Field(None, description="container or hypervisor, where cheaply known")
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
    load_average: float | None = Field(None, description="processes ready to run, mean over the last minute")
    python: str = Field(description="version of Python")
    packages: dict[str, str] = Field(default_factory=dict, description="versions of the packages installed")
    driver_version: str | None = Field(None, description="version of the GPU driver")
    cuda_version: str | None = Field(None, description="newest CUDA that the driver speaks")
    gpus: tuple[Gpu, ...] = Field((), description="the visible GPUs, in the order of their PCI bus ids")
    gpu_links: tuple[tuple[str, ...], ...] = Field(
        (), description="between each pair of GPUs: NV and the number of NVLinks, or PIX, PXB, PHB, NODE, SYS"
    )
    peer_to_peer: tuple[tuple[bool | None, ...], ...] = Field(
        (), description="whether each GPU reads the memory of each other one directly"
    )
    commit: str | None = Field(None, description="git commit of raybench's checkout")
    dirty: bool | None = Field(None, description="whether that checkout had uncommitted changes")
    variables: dict[str, str] = Field(default_factory=dict, description="relevant environment variables")
    other_variables: tuple[str, ...] = Field(
        (), description="names of further ones that begin alike; what they hold may be a secret"
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
    graphics = gpus.graphics()
    commit, dirty = _checkout()
    return Environment(
        hostname=socket.gethostname(),
        os=_distribution(),
        kernel=platform.release(),
        virtualization=virtualization(),
        cpu_model=cores.cpu_model(),
        cores=os.cpu_count() or 1,
        usable_cores=cores.usable_cores(),
        sockets=cores.sockets(),
        numa_nodes=cores.numa_nodes(),
        memory_bytes=memory.total_memory_bytes(),
        memory_limit_bytes=memory.memory_limit_bytes(),
        governor=cores.governor(),
        clock_mhz=cores.clock_mhz(),
        load_average=os.getloadavg()[0],
        python=platform.python_version(),
        packages=_versions(),
        driver_version=graphics.driver_version,
        cuda_version=graphics.cuda_version,
        gpus=graphics.gpus,
        gpu_links=graphics.links,
        peer_to_peer=graphics.peer_to_peer,
        commit=commit,
        dirty=dirty,
        variables=variables.told(os.environ),
        other_variables=variables.untold(os.environ),
    )


def of_nodes(nodes: Sequence[Environment]) -> Environment:
    """What a study on these nodes depends on; of one node it is that node's own."""
    first, *others = nodes
    return first.model_copy(update={"nodes": tuple(nodes)}) if others else first


def _versions() -> dict[str, str]:
    versions = {"raybench": raybench.__version__}
    for name in PACKAGES[1:]:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return versions


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
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    if not commit:  # a checkout without a commit
        return None, None
    return commit, None if changes is None else bool(changes)


def _git(root: Path, *arguments: str) -> str | None:
    # No lock and no index refresh: another git may be at work in the same checkout.
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
