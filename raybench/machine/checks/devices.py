"""Cores and GPUs, and how the GPUs are connected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from raybench.machine import cores, gpus
from raybench.machine.checks.check import GIB, NOT_ON_CPUS, Check
from raybench.machine.checks.software import installed_version


def devices() -> Iterator[Check]:
    """Cores and GPUs."""
    graphics, usable = gpus.graphics(), cores.usable_cores()
    clock = cores.clock_mhz()
    at = f" at {clock:.0f} MHz" if clock else ""
    yield Check("devices", "ok", f"{usable} usable of {os.cpu_count()} cores, {cores.cpu_model()}{at}")
    governor = cores.governor()
    if governor and governor not in ("performance", "schedutil"):
        yield Check(
            "devices",
            "warning",
            f"frequency governor {governor}: clocks follow the load",
            "sudo cpupower frequency-set -g performance",
        )
    if not graphics.gpus:
        if Path("/dev/nvidia0").exists() and os.environ.get("CUDA_VISIBLE_DEVICES") is None:
            yield Check("devices", "missing", "there is a GPU, its driver does not answer", "nvidia-smi")
        else:
            yield Check("devices", "ok", "no GPU visible: workers run on cores, with gloo")
        return
    for index, gpu in enumerate(graphics.gpus):
        limit = f", limit {gpu.power_limit_watts:.0f} W" if gpu.power_limit_watts else ""
        slot = f", PCIe {gpu.pcie_generation} x{gpu.pcie_width}" if gpu.pcie_generation else ""
        size = f"{gpu.memory_bytes / GIB:.0f} GiB"
        yield Check("devices", "ok", f"GPU {index}: {gpu.name}, {size}, {gpu.pci_bus_id}{limit}{slot}")
    yield Check("devices", "ok", f"driver {graphics.driver_version}, CUDA up to {graphics.cuda_version}")
    if installed_version("torch").endswith("+cpu"):
        command = "python -m pip install --force-reinstall torch torchvision"
        yield Check("devices", "missing", "this torch is built without CUDA", command)


def topology() -> Iterator[Check]:
    """How the GPUs are connected, and whether each reads the memory of the others."""
    graphics = gpus.graphics()
    num = len(graphics.gpus)
    if num == 0:
        yield Check("peer-to-peer", "unused", NOT_ON_CPUS)
        return
    if num < 2:
        yield Check("peer-to-peer", "ok", "nothing to connect: fewer than two GPUs")
        return
    pairs = [(a, b) for a in range(num) for b in range(a + 1, num)]
    kinds: dict[str, list[str]] = {}
    for a, b in pairs:
        kinds.setdefault(graphics.links[a][b], []).append(f"{a}-{b}")
    connections = "; ".join(f"{kind}: {_few(names)}" for kind, names in kinds.items())
    without = [f"{a}-{b}" for a, b in pairs if graphics.peer_to_peer[a][b] is False]
    if without:
        yield Check(
            "peer-to-peer",
            "warning",
            f"{connections}; no peer-to-peer between {_few(without)}: transfers go through main memory",
            "nvidia-smi topo -p2p r",
        )
    else:
        yield Check("peer-to-peer", "ok", connections)


def _few(names: list[str]) -> str:
    return " ".join(names) if len(names) <= 8 else f"{' '.join(names[:8])} and {len(names) - 8} more"
