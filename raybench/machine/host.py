"""What one node is: its name, its processor and its memory. What the machine does not report is None."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

import psutil

from raybench.spec.plural import plural

DeviceKind = Literal["cpu", "cuda"]
BACKENDS = {"cpu": "gloo", "cuda": "NCCL"}  # what collectives run on


@dataclass(frozen=True)
class WorkerNeeds:
    """What one worker takes of its node: cores, and on GPUs one GPU."""

    device: DeviceKind
    cpus: int

    def __str__(self) -> str:
        cores = plural(self.cpus, "core")
        return f"{cores} and a GPU" if self.device == "cuda" else cores


@dataclass(frozen=True)
class Resources:
    """What there is to run on."""

    device: DeviceKind
    num_devices: int  # places for workers: cores over cores per worker, of GPUs no more than there are
    device_name: str
    num_nodes: int = 1
    num_gpus: int = 0  # where the devices are GPUs: all of them, with cores or without


def family_of(address: str) -> socket.AddressFamily:
    """The family of sockets that reaches ``address``."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def free_port(address: str) -> int:
    """A port of this host that is free, for ``address``."""
    with socket.socket(family_of(address)) as taken:
        taken.bind(("", 0))
        return int(taken.getsockname()[1])


CONTROL_GROUPS = Path("/sys/fs/cgroup")


def read(path: Path) -> str | None:
    """The file's text without white space around it; None where it is empty or cannot be read."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def first_match(path: Path, pattern: str) -> str | None:
    """What the first group of ``pattern`` holds where it first matches the lines of a file, or None."""
    match = re.search(pattern, read(path) or "", re.MULTILINE)
    return match.group(1).strip() if match else None


def control_group_values(controller: str, name: str) -> list[str]:
    """The values of ``name`` in this process's control group and in those above it, v1 and v2."""
    return [text for folder in control_group_folders(controller) if (text := read(folder / name))]


def control_group_folders(controller: str) -> Iterator[Path]:
    """The folders of this process's control group and of those above it, the innermost first."""
    for line in (read(Path("/proc/self/cgroup")) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        root = CONTROL_GROUPS if not controllers else CONTROL_GROUPS / controllers
        if controllers and controller not in controllers.split(","):
            continue
        # In a container the path may be the host's, and the group's own files at the root.
        parts = path.strip("/").split("/")
        for depth in range(len(parts), -1, -1):
            yield root.joinpath(*parts[:depth])


CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")
CPU_INFO = Path("/proc/cpuinfo")


def allowed_cores() -> tuple[int, ...]:
    """The numbers of the cores on which this process may run."""
    return tuple(sorted(os.sched_getaffinity(0)))


def usable_cores() -> int:
    """Whole cores for this process: its affinity, cut to the container's quota of time; at least 1."""
    allowed, quota = len(allowed_cores()), _quota_cores()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def _quota_cores() -> float | None:
    """Cores' worth of time that the control groups grant; None: as much as there is."""
    quotas = []
    for text in control_group_values("cpu", "cpu.max"):
        share, _, period = text.partition(" ")
        if share != "max" and period:
            quotas.append(int(share) / int(period))
    shares = control_group_values("cpu", "cpu.cfs_quota_us")
    periods = control_group_values("cpu", "cpu.cfs_period_us")
    pairs = zip(shares, periods, strict=False)
    quotas += [int(share) / int(period) for share, period in pairs if int(share) > 0]
    return min(quotas, default=None)


def quota_periods() -> list[tuple[int, int]]:
    """Periods of the kernel's scheduler so far, and those in which the quota of time was used up.

    A pair for each control group of this process that counts them.
    """
    texts = control_group_values("cpu", "cpu.stat")
    counts = [dict(re.findall(r"^(nr_\w+) (\d+)$", text, re.MULTILINE)) for text in texts]
    return [(int(each["nr_periods"]), int(each["nr_throttled"])) for each in counts if "nr_throttled" in each]


def quota_used_up(before: Sequence[tuple[int, int]]) -> float | None:
    """Share of the scheduler's periods since ``before`` in which a quota of time was used up.

    Of the control group that met it most often; None where no group has a quota.
    """
    shares = [
        (used_up - old_used_up) / (periods - old_periods)
        for (periods, used_up), (old_periods, old_used_up) in zip(quota_periods(), before, strict=False)
        if periods > old_periods  # without a quota there are no periods
    ]
    return max(shares, default=None)


def busy_core_seconds() -> float | None:
    """Seconds that the cores which this process may use were not idle, since the machine began.

    None where it is not told. Counted in hundredths of a second, with what a hypervisor gave to others.
    """
    try:
        every = psutil.cpu_times(percpu=True)
        used = [every[core] for core in allowed_cores()]
    except (OSError, IndexError, NotImplementedError):
        return None
    # guest time is part of user time already
    fields = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for times in used for name in fields)


def own_core_seconds(*, with_children: bool) -> float:
    """Seconds that this process has used of cores, and its children if asked (takes milliseconds).

    Those that have ended count too, once they are waited for.
    """
    number = 4 if with_children else 2  # user and system; then those of children that have ended
    seconds = sum(os.times()[:number])
    if with_children:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                seconds += sum(child.cpu_times()[:number])
    return seconds


def cpu_model() -> str:
    """The processor's name."""
    name = first_match(CPU_INFO, r"^(?:model name|Model|Processor)\s*:\s*(.+)$")
    return name or platform.processor() or platform.machine()


def sockets() -> int | None:
    """Processors, or None where the kernel does not number them."""
    files = CPUS.glob("cpu[0-9]*/topology/physical_package_id")
    return len({read(file) for file in files} - {None}) or None


def numa_nodes() -> int | None:
    """NUMA nodes, or None where the kernel does not show them."""
    return len(list(NODES.glob("node[0-9]*"))) or None


def cores_of_node(node: int) -> set[int]:
    """The numbers of a NUMA node's cores; empty where it has none, or the kernel does not show them."""
    spans = (span.partition("-") for span in (read(NODES / f"node{node}/cpulist") or "").split(",") if span)
    return {core for first, _, last in spans for core in range(int(first), int(last or first) + 1)}


def governor() -> str | None:
    """The frequency governor of core 0; virtual machines have none."""
    return read(CPUS / "cpu0/cpufreq/scaling_governor")


def clock_mhz() -> float | None:
    """The clock of core 0 now, in MHz."""
    exact_khz = read(CPUS / "cpu0/cpufreq/scaling_cur_freq")
    if exact_khz and exact_khz.isdecimal():
        return int(exact_khz) / 1000
    rounded = first_match(CPU_INFO, r"^cpu MHz\s*:\s*([\d.]+)")
    return float(rounded) if rounded else None


_NO_LIMIT_BYTES = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63

# What has glibc keep for the next step what a step frees: by variable its parameter in malloc.h, and bytes.
# Blocks up to so many come from the heap (M_MMAP_THRESHOLD, its largest value), so many may be free at the
# heap's end (M_TRIM_THRESHOLD, an int), a thread's heap keeps a part of so many (M_TOP_PAD).
KEPT_BY_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1),
    "MALLOC_TOP_PAD_": (-2, 64 * 2**20),
}


def sets_malloc(names: Iterable[str]) -> bool:
    """Whether one of these variables tells glibc's malloc what to keep: it is left alone then."""
    return any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in names)


def total_memory_bytes() -> int:
    """Main memory of the host, in bytes."""
    return int(psutil.virtual_memory().total)


def memory_limit_bytes() -> int | None:
    """The container's limit on memory, or None without one."""
    limits = [
        int(text)
        for name in ("memory.max", "memory.limit_in_bytes")
        for text in control_group_values("memory", name)
        if text.isdecimal() and int(text) < _NO_LIMIT_BYTES
    ]
    limit = min(limits, default=None)
    return limit if limit is None or limit < total_memory_bytes() else None


def available_memory_bytes() -> int:
    """Memory that processes may still take: what the host has left, or the container if that is less."""
    left = int(psutil.virtual_memory().available)
    for used, reclaimable, limit in (
        ("memory.current", "inactive_file", "memory.max"),
        ("memory.usage_in_bytes", "total_inactive_file", "memory.limit_in_bytes"),
    ):
        for folder in control_group_folders("memory"):
            most, taken = read(folder / limit) or "", read(folder / used) or ""
            if not (most.isdecimal() and taken.isdecimal()) or int(most) >= _NO_LIMIT_BYTES:
                continue
            # files that the kernel can forget count as used
            forgettable = first_match(folder / "memory.stat", rf"^{reclaimable} (\d+)$") or "0"
            left = min(left, int(most) - int(taken) + int(forgettable))
    return max(left, 0)


def installed_version(name: str) -> str:
    """The version of a package, empty where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def host_id() -> str:
    """The host's name, and the id of its kernel's last start: two machines may have one name."""
    return f"{socket.gethostname()} {read(BOOT_ID) or ''}".strip()


def numbered(hosts: Sequence[str]) -> tuple[int, ...]:
    """A number for each of ``hosts``, the same for the same one; that of the first is 0."""
    distinct = list(dict.fromkeys(hosts))
    return tuple(distinct.index(host) for host in hosts)
