"""The GPUs that this process sees and how they are connected, as NVML tells them.

What the driver does not tell is None or empty, never a guess.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from raybench.machine.host import allowed_cores, cores_of_node, installed_version, numa_nodes, read

T = TypeVar("T")

_ANCESTORS = {0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# By number: pynvml has NVML_P2P_CAPS_INDEX_READ as a tuple.
_P2P_READ, _P2P_NVLINK, _P2P_OK = 0, 2, 0
_EXCLUSIVE_PROCESS, _MIG_ON = 3, 1
PCI_DEVICES, DEVICE_FILES = Path("/sys/bus/pci/devices"), Path("/dev")
_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES; the last is Slurm's


class Gpu(BaseModel, frozen=True):
    """One GPU, as its driver describes it; None: the driver does not tell."""

    name: str = Field(description="model")
    compute_capability: str | None = Field(None, description="what its kernels are compiled for, as 9.0")
    memory_bytes: int | None = Field(None, description="its memory, in bytes")
    pci_bus_id: str = Field("", description="where it is plugged in")
    power_limit_watts: float | None = Field(None, description="the limit in force, in W")
    max_clock_mhz: int | None = Field(None, description="highest clock of its multiprocessors, in MHz")
    max_memory_clock_mhz: int | None = Field(None, description="highest clock of its memory, in MHz")
    pcie_generation: int | None = Field(None, description="of its slot, the highest (idle links go slower)")
    pcie_width: int | None = Field(None, description="lanes of its slot, the most")
    cores_near: int | None = Field(None, description="cores of its NUMA node that this process may use")
    is_exclusive: bool | None = Field(None, description="whether its compute mode is for one process alone")
    is_sliced: bool | None = Field(None, description="whether MIG divides it")


class Graphics(BaseModel, frozen=True):
    """The visible GPUs and how they are connected; empty without a driver."""

    gpus: tuple[Gpu, ...] = Field((), description="the visible GPUs, in the order of their PCI bus ids")
    gpu_links: tuple[tuple[str, ...], ...] = Field(
        (), description="between each pair of GPUs: NV and the number of NVLinks, or PIX, PXB, PHB, NODE, SYS"
    )
    peer_to_peer: tuple[tuple[bool | None, ...], ...] = Field(
        (), description="whether each GPU reads the memory of each other one directly"
    )
    driver_version: str | None = Field(None, description="version of the GPU driver")
    cuda_version: str | None = Field(None, description="newest CUDA that the driver speaks")


def graphics() -> Graphics:
    """What NVML says of the GPUs that CUDA_VISIBLE_DEVICES leaves visible."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library, or one that does not fit: then there is no GPU to use
        return Graphics()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        handles = _visible(handles, lambda handle: str(pynvml.nvmlDeviceGetUUID(handle)))
        cuda = _answer(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        return Graphics(
            gpus=tuple(_gpu(pynvml, handle) for handle in handles),
            gpu_links=tuple(tuple(_link(pynvml, a, b) for b in handles) for a in handles),
            peer_to_peer=tuple(tuple(_reads_peer(pynvml, a, b) for b in handles) for a in handles),
            driver_version=_answer(pynvml.nvmlSystemGetDriverVersion),
            cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )
    except Exception:  # a device that fell off its bus fails in any of these
        return Graphics()
    finally:
        _answer(pynvml.nvmlShutdown)


def unsupported() -> str | None:
    """Why what there is of GPUs cannot be measured; None: nothing is known against it."""
    visible, found = os.environ.get("CUDA_VISIBLE_DEVICES", "0"), graphics()
    slices = [word.strip() for word in visible.split(",") if word.strip().startswith("MIG-")]
    if slices:
        return f"CUDA_VISIBLE_DEVICES: whole GPUs, and no slices of one (received {slices[0]!r})"
    if found.driver_version is None and visible not in _HIDDEN and (files := _device_files()):
        return f'GPUs: a driver that answers nvidia-smi, or device = "cpu" (received {files[0]} without)'
    divided = [gpu.name for gpu in found.gpus if gpu.is_sliced]
    if divided:
        return f"GPUs: whole ones, with MIG off: nvidia-smi -mig 0 (received {divided[0]} with MIG on)"
    version = installed_version("torch")
    if "+rocm" in version:
        return f'torch: built for CUDA, or device = "cpu": AMD is not measured yet (received {version})'
    return None


def _device_files() -> list[Path]:
    """Of the GPUs that this process may open; Slurm lets a job open its own alone."""
    return [file for file in DEVICE_FILES.glob("nvidia[0-9]*") if os.access(file, os.R_OK)]


def gpu_names() -> list[str]:
    """The models of the visible GPUs, one for each."""
    return [gpu.name for gpu in graphics().gpus]


def _answer(ask: Callable[..., T], *arguments: Any) -> T | None:
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
            named = [handles[int(word)]]
        elif word.startswith("GPU-"):
            named = [handle for handle in handles if uuid(handle).startswith(word)]
        else:
            named = []
        if len(named) != 1 or named[0] in visible:
            break
        visible += named
    return visible


def _gpu(nvml: Any, handle: Any) -> Gpu:
    limit_mw = _answer(nvml.nvmlDeviceGetPowerManagementLimit, handle)
    memory = _answer(nvml.nvmlDeviceGetMemoryInfo, handle)  # with MIG on it is told to root alone
    capability = _answer(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    bus_id = address(_answer(nvml.nvmlDeviceGetPciInfo, handle))
    near = cores_near(bus_id)
    return Gpu(
        name=str(nvml.nvmlDeviceGetName(handle)),
        compute_capability=None if capability is None else ".".join(map(str, capability)),
        memory_bytes=None if memory is None else int(memory.total),
        pci_bus_id=bus_id,
        power_limit_watts=None if limit_mw is None else limit_mw / 1000,
        max_clock_mhz=_answer(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        max_memory_clock_mhz=_answer(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
        pcie_generation=_answer(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=_answer(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        cores_near=near and near[1],
        is_exclusive=_answer(lambda: int(nvml.nvmlDeviceGetComputeMode(handle)) == _EXCLUSIVE_PROCESS),
        is_sliced=_answer(lambda: nvml.nvmlDeviceGetMigMode(handle)[0] == _MIG_ON),
    )


def cores_near(bus_id: str) -> tuple[int, int] | None:
    """The NUMA node of a GPU, and how many of its cores this process may use.

    None where all cores are on one node, or the kernel does not report where they or the GPU are.
    """
    domain, _, place = bus_id.lower().partition(":")  # NVML writes the domain in eight digits, sysfs in four
    node = read(PCI_DEVICES / f"{domain.lstrip('0').zfill(4)}:{place}" / "numa_node") or ""
    if not node.isdecimal() or (numa_nodes() or 1) == 1:  # -1: the firmware does not say
        return None
    cores = cores_of_node(int(node))
    return (int(node), len(cores.intersection(allowed_cores()))) if cores else None


def address(info: Any) -> str:
    """The PCI address in what NVML reports of a GPU, or of what a link leads to; empty where it has none."""
    bus_id = getattr(info, "busId", "")
    return bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)


def _link(nvml: Any, a: Any, b: Any) -> str:
    """What joins two GPUs, in the words of ``nvidia-smi topo -m``."""
    if a is b:
        return "X"
    if _answer(nvml.nvmlDeviceGetP2PStatus, a, b, _P2P_NVLINK) == _P2P_OK and (count := _nvlinks(nvml, a, b)):
        return f"NV{count}"
    level = _answer(nvml.nvmlDeviceGetTopologyCommonAncestor, a, b)
    return "?" if level is None else _ANCESTORS.get(int(level), "?")


def _nvlinks(nvml: Any, a: Any, b: Any) -> int:
    """NVLinks from ``a`` to ``b``; where they end at a switch, all that ``a`` has."""
    active = [
        link for link in range(nvml.NVML_NVLINK_MAX_LINKS) if _answer(nvml.nvmlDeviceGetNvLinkState, a, link)
    ]
    target = address(_answer(nvml.nvmlDeviceGetPciInfo, b))
    ends = [address(_answer(nvml.nvmlDeviceGetNvLinkRemotePciInfo, a, link)) for link in active]
    return ends.count(target) or len(active)


def _reads_peer(nvml: Any, a: Any, b: Any) -> bool | None:
    if a is b:
        return None
    status = _answer(nvml.nvmlDeviceGetP2PStatus, a, b, _P2P_READ)
    return None if status is None else status == _P2P_OK
