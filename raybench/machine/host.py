"""Reading the machine: cores, limits of the container, GPUs, network interfaces.

What the machine does not tell is None or empty, never a guess. Imports neither torch nor Ray.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import psutil
from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT_BYTES = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63
_ANCESTORS = {0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# By number: pynvml has NVML_P2P_CAPS_INDEX_READ as a tuple.
_P2P_READ, _P2P_NVLINK, _P2P_OK = 0, 2, 0


class Gpu(BaseModel):
    """One GPU, as its driver describes it; None: the driver does not tell."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(description="model")
    uuid: str = Field("", description="the driver's identifier of this very device")
    memory_bytes: int = Field(description="its memory, in bytes")
    pci_bus_id: str = Field("", description="where it is plugged in")
    power_limit_watts: float | None = Field(None, description="the limit in force, in W")
    max_clock_mhz: int | None = Field(None, description="highest clock of its multiprocessors, in MHz")
    max_memory_clock_mhz: int | None = Field(None, description="highest clock of its memory, in MHz")
    clock_mhz: int | None = Field(None, description="clock of its multiprocessors now, in MHz")
    pcie_generation: int | None = Field(None, description="of its slot, the highest (idle links go slower)")
    pcie_width: int | None = Field(None, description="lanes of its slot, the most")

    # The same model with the same limits in the same kind of slot: measurements compare.
    COMPARED: ClassVar[tuple[str, ...]] = (
        "name",
        "memory_bytes",
        "power_limit_watts",
        "max_clock_mhz",
        "max_memory_clock_mhz",
        "pcie_generation",
        "pcie_width",
    )


@dataclass(frozen=True)
class Graphics:
    """The visible GPUs and how they are connected; empty without a driver."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    peer_to_peer: tuple[tuple[bool | None, ...], ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    # Process ids on the GPUs with the GPU's place in ``gpus``; a container may hide those outside it.
    processes: tuple[tuple[int, int], ...] = ()


def graphics() -> Graphics:
    """What NVML says of the GPUs that CUDA_VISIBLE_DEVICES leaves visible."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library, or one that does not fit: then there is no GPU to use
        return Graphics()
    try:
        every = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        handles = _visible(every, lambda handle: str(pynvml.nvmlDeviceGetUUID(handle)))
        cuda = _told(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        return Graphics(
            gpus=tuple(_gpu(pynvml, handle) for handle in handles),
            links=tuple(tuple(_link(pynvml, a, b) for b in handles) for a in handles),
            peer_to_peer=tuple(tuple(_reads_peer(pynvml, a, b) for b in handles) for a in handles),
            driver_version=_told(pynvml.nvmlSystemGetDriverVersion),
            cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            processes=tuple(
                (int(process.pid), place)
                for place, handle in enumerate(handles)
                for process in _told(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
            ),
        )
    except Exception:  # a device that fell off its bus fails in any of these
        return Graphics()
    finally:
        _told(pynvml.nvmlShutdown)


def gpu_names() -> list[str]:
    """The models of the visible GPUs, one for each."""
    return [gpu.name for gpu in graphics().gpus]


def _told(ask: Callable[..., T], *arguments: Any) -> T | None:
    """What NVML answers, or None where this device or driver has no answer."""
    try:
        return ask(*arguments)
    except Exception:
        return None


def _visible(handles: list[T], uuid: Callable[[T], str]) -> list[T]:
    """Those that CUDA_VISIBLE_DEVICES names, by index or UUID; as in CUDA, a wrong name ends the list."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return handles
    visible: list[T] = []
    for word in (part.strip() for part in wanted.split(",")):
        if word.isdecimal() and int(word) < len(handles):
            found = [handles[int(word)]]
        else:
            found = [
                handle for handle in handles if word.startswith("GPU-") and uuid(handle).startswith(word)
            ]
        if len(found) != 1 or found[0] in visible:
            break
        visible += found
    return visible


def _gpu(nvml: Any, handle: Any) -> Gpu:
    limit_mw = _told(nvml.nvmlDeviceGetPowerManagementLimit, handle)
    return Gpu(
        name=str(nvml.nvmlDeviceGetName(handle)),
        uuid=str(_told(nvml.nvmlDeviceGetUUID, handle) or ""),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        pci_bus_id=_bus_id(nvml, handle),
        power_limit_watts=None if limit_mw is None else limit_mw / 1000,
        max_clock_mhz=_told(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        max_memory_clock_mhz=_told(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
        clock_mhz=_told(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        pcie_generation=_told(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=_told(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
    )


def _bus_id(nvml: Any, handle: Any) -> str:
    info = _told(nvml.nvmlDeviceGetPciInfo, handle)
    bus_id = getattr(info, "busId", "")
    return bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)


def _link(nvml: Any, a: Any, b: Any) -> str:
    """What joins two GPUs, in the words of ``nvidia-smi topo -m``."""
    if a is b:
        return "X"
    if _told(nvml.nvmlDeviceGetP2PStatus, a, b, _P2P_NVLINK) == _P2P_OK and (count := _nvlinks(nvml, a, b)):
        return f"NV{count}"
    level = _told(nvml.nvmlDeviceGetTopologyCommonAncestor, a, b)
    return "?" if level is None else _ANCESTORS.get(int(level), "?")


def _nvlinks(nvml: Any, a: Any, b: Any) -> int:
    """NVLinks from ``a`` to ``b``; where they end at a switch, all that ``a`` has."""
    active = [
        link for link in range(nvml.NVML_NVLINK_MAX_LINKS) if _told(nvml.nvmlDeviceGetNvLinkState, a, link)
    ]
    target = _bus_id(nvml, b)
    ends = [getattr(_told(nvml.nvmlDeviceGetNvLinkRemotePciInfo, a, link), "busId", b"") for link in active]
    direct = sum((end.decode() if isinstance(end, bytes) else str(end)) == target for end in ends)
    return direct or len(active)


def _reads_peer(nvml: Any, a: Any, b: Any) -> bool | None:
    if a is b:
        return None
    status = _told(nvml.nvmlDeviceGetP2PStatus, a, b, _P2P_READ)
    return None if status is None else status == _P2P_OK


def usable_cores() -> int:
    """Whole cores for this process: its affinity, cut to the container's quota of time; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota_cores()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def _quota_cores() -> float | None:
    quotas = []
    for text in _cgroup_values("cpu", "cpu.max"):
        share, _, period = text.partition(" ")
        if share != "max" and period:
            quotas.append(int(share) / int(period))
    shares, periods = _cgroup_values("cpu", "cpu.cfs_quota_us"), _cgroup_values("cpu", "cpu.cfs_period_us")
    quotas += [
        int(share) / int(period) for share, period in zip(shares, periods, strict=False) if int(share) > 0
    ]
    return min(quotas, default=None)


def memory_limit_bytes() -> int | None:
    """The container's limit on memory, or None without one."""
    limits = [
        int(text)
        for name in ("memory.max", "memory.limit_in_bytes")
        for text in _cgroup_values("memory", name)
        if text.isdecimal() and int(text) < _NO_LIMIT_BYTES
    ]
    limit = min(limits, default=None)
    return limit if limit is None or limit < memory_bytes() else None


def available_memory_bytes() -> int:
    """Memory that processes may still take: what the host has left, or the container if that is less."""
    left = int(psutil.virtual_memory().available)
    for used, cache, limit in (
        ("memory.current", "inactive_file", "memory.max"),
        ("memory.usage_in_bytes", "total_inactive_file", "memory.limit_in_bytes"),
    ):
        for folder in _cgroup_folders("memory"):
            most, taken = _read(folder / limit) or "", _read(folder / used) or ""
            if not (most.isdecimal() and taken.isdecimal()) or int(most) >= _NO_LIMIT_BYTES:
                continue
            # files that the kernel can forget count as used
            found = re.search(rf"^{cache} (\d+)$", _read(folder / "memory.stat") or "", re.MULTILINE)
            left = min(left, int(most) - int(taken) + (int(found.group(1)) if found else 0))
    return max(left, 0)


def _cgroup_values(controller: str, name: str) -> list[str]:
    """The values of ``name`` in this process's control group and in those above it, v1 and v2."""
    return [text for folder in _cgroup_folders(controller) if (text := _read(folder / name))]


def _cgroup_folders(controller: str) -> Iterator[Path]:
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        root = _CGROUPS if not controllers else _CGROUPS / controllers
        if controllers and controller not in controllers.split(","):
            continue
        # In a container the path may be the host's, and the group's own files at the root.
        parts = path.strip("/").split("/")
        for depth in range(len(parts), -1, -1):
            yield root.joinpath(*parts[:depth])


def memory_bytes() -> int:
    """Main memory of the host, in bytes."""
    return int(psutil.virtual_memory().total)


def cpu_model() -> str:
    """The processor's name."""
    found = re.search(
        r"^(?:model name|Model|Processor)\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")) or "", re.MULTILINE
    )
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def sockets() -> int | None:
    """Processors, or None where the kernel does not number them."""
    packages = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
    found = {_read(path) for path in packages} - {None}
    return len(found) or None


def numa_nodes() -> int | None:
    """NUMA nodes, or None where the kernel does not show them."""
    return len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None


def governor() -> str | None:
    """The frequency governor of core 0; virtual machines have none."""
    return _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))


def clock_mhz() -> float | None:
    """The clock of core 0 now, in MHz."""
    exact = _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"))
    if exact and exact.isdecimal():
        return int(exact) / 1000
    found = re.search(r"^cpu MHz\s*:\s*([\d.]+)", _read(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return float(found.group(1)) if found else None


def virtualization() -> str | None:
    """A container or hypervisor that can be told without asking another program."""
    if Path("/run/.containerenv").exists():
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if Path("/.dockerenv").exists():
        return "docker"
    if "SINGULARITY_CONTAINER" in os.environ or "APPTAINER_CONTAINER" in os.environ:
        return "apptainer"
    is_guest = re.search(r"^flags\s*:.*\bhypervisor\b", _read(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return (_read(Path("/sys/class/dmi/id/sys_vendor")) or "virtual machine") if is_guest else None


def network_interface() -> tuple[str, str] | None:
    """Interface and address that gloo takes: GLOO_SOCKET_IFNAME, else where the host's name leads.

    The address is empty where the named interface does not exist; None: no interface at all.
    """
    addresses = interfaces()
    if named := os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0].strip():
        return named, addresses.get(named, "")
    try:
        own = {str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        own = set()
    for name, address in addresses.items():
        if address in own or (name == "lo" and any(each.startswith("127.") for each in own)):
            return name, address
    # gloo falls back to the loopback interface when the host's own name leads nowhere.
    return ("lo", addresses["lo"]) if "lo" in addresses else None


def nccl_interface() -> tuple[str, str] | None:
    """Interface and address that NCCL's sockets take first: NCCL_SOCKET_IFNAME, else NCCL's own order.

    That order, of NCCL's manual: names that begin with ``ib``, then any but docker's and the loopback,
    then docker's, then the loopback. The address is empty where the named one does not exist.
    """
    addresses = interfaces()
    wanted = os.environ.get("NCCL_SOCKET_IFNAME", "").strip()
    if wanted:
        names = [name for name in addresses if _matches(name, wanted)]
        return (names[0], addresses[names[0]]) if names else (wanted, "")
    rest = [name for name in addresses if not name.startswith(("docker", "lo"))]
    order = [
        *(name for name in rest if name.startswith("ib")),
        *rest,
        *(name for name in addresses if name.startswith("docker")),
        *addresses,
    ]
    return (order[0], addresses[order[0]]) if order else None


def _matches(name: str, wanted: str) -> bool:
    """``eth`` prefixes, ``=eth0`` exact names, ``^`` none of these, several between commas."""
    excludes, rest = wanted.startswith("^"), wanted.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    words = [word for word in rest.split(",") if word]
    hit = any(name == word if exact else name.startswith(word) for word in words)
    return hit != excludes


def interfaces() -> dict[str, str]:
    """The interfaces that are up, in the kernel's order, each with an address, IPv4 first."""
    every, states = psutil.net_if_addrs(), psutil.net_if_stats()
    found: dict[str, str] = {}
    for _, name in socket.if_nameindex():
        addresses = {entry.family: entry.address.split("%")[0] for entry in reversed(every.get(name, []))}
        address = addresses.get(socket.AF_INET) or addresses.get(socket.AF_INET6)
        if address and name in states and states[name].isup:
            found[name] = address
    return found


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
