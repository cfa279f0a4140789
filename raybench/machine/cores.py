"""The processor: its cores, how many of them this process may use, its clock.

What the machine does not tell is None, never a guess.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from raybench.machine import kernel_files

CPUS = Path("/sys/devices/system/cpu")
CPU_INFO = Path("/proc/cpuinfo")


def allowed_cores() -> tuple[int, ...]:
    """The numbers of the cores on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """Whole cores for this process: its affinity, cut to the container's quota of time; at least 1."""
    allowed, quota = len(allowed_cores()), _quota_cores()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def _quota_cores() -> float | None:
    """Cores' worth of time that the control groups grant; None: as much as there is."""
    quotas = []
    for text in kernel_files.control_group_values("cpu", "cpu.max"):
        share, _, period = text.partition(" ")
        if share != "max" and period:
            quotas.append(int(share) / int(period))
    shares = kernel_files.control_group_values("cpu", "cpu.cfs_quota_us")
    periods = kernel_files.control_group_values("cpu", "cpu.cfs_period_us")
    pairs = zip(shares, periods, strict=False)
    quotas += [int(share) / int(period) for share, period in pairs if int(share) > 0]
    return min(quotas, default=None)


def cpu_model() -> str:
    """The processor's name."""
    name = kernel_files.first_match(CPU_INFO, r"^(?:model name|Model|Processor)\s*:\s*(.+)$")
    return name or platform.processor() or platform.machine()


def sockets() -> int | None:
    """Processors, or None where the kernel does not number them."""
    files = CPUS.glob("cpu[0-9]*/topology/physical_package_id")
    return len({kernel_files.read(file) for file in files} - {None}) or None


def numa_nodes() -> int | None:
    """NUMA nodes, or None where the kernel does not show them."""
    return len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None


def governor() -> str | None:
    """The frequency governor of core 0; virtual machines have none."""
    return kernel_files.read(CPUS / "cpu0/cpufreq/scaling_governor")


def clock_mhz() -> float | None:
    """The clock of core 0 now, in MHz."""
    exact_khz = kernel_files.read(CPUS / "cpu0/cpufreq/scaling_cur_freq")
    if exact_khz and exact_khz.isdecimal():
        return int(exact_khz) / 1000
    rounded = kernel_files.first_match(CPU_INFO, r"^cpu MHz\s*:\s*([\d.]+)")
    return float(rounded) if rounded else None
