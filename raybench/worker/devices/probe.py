"""What the machine and the model tell beside step times: memory, clocks, energy, FLOP/s, DDP's logger."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from raybench.machine import memory


class DeviceProbe:
    """Reads one rank's device; what cannot be read is None."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._nvml: Any = None
        self._handle: Any = None
        self._stale_peak: int | None = None  # of the resident set, where it could not be forgotten
        if device.type == "cuda":
            self._open_nvml()

    def _open_nvml(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = str(torch.cuda.get_device_properties(self._device).uuid)
            uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = pynvml
        except Exception:  # no driver library, or a device it does not know: then nothing is read
            self._nvml = None

    def _read(self, function: str, *arguments: Any) -> Any:
        if self._nvml is None:
            return None
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except Exception:
            return None

    def clock_mhz(self) -> float | None:
        """The device's clock right now; on CPUs the mean over the cores."""
        if self._device.type == "cuda":
            clock: float | None = self._read("nvmlDeviceGetClockInfo", 1)  # 1: the streaming multiprocessors
            return clock
        frequency = psutil.cpu_freq()
        return float(frequency.current) if frequency else None

    def throttled(self) -> bool | None:
        """Whether heat or power holds the clock down."""
        reasons = self._read("nvmlDeviceGetCurrentClocksThrottleReasons")
        # 0x4 power cap, 0x8 hardware slowdown, 0x20 and 0x40 heat, 0x80 power brake
        return None if reasons is None else bool(reasons & (0x4 | 0x8 | 0x20 | 0x40 | 0x80))

    def energy_joules(self) -> float | None:
        """Energy since the driver was loaded."""
        millijoules = self._read("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def utilization(self) -> float | None:
        """Share of the last sample period in which a kernel ran, 0 to 1."""
        rates = self._read("nvmlDeviceGetUtilizationRates")
        return None if rates is None else rates.gpu / 100

    def reset_peak(self, devices: Sequence[int] = ()) -> None:
        """Forget earlier peaks of memory, on further ``devices`` of this process too."""
        if self._device.type == "cuda":
            for device in {self._device.index, *devices}:
                torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123  (a kernel file)
                file.write("5")  # resets the high-water mark of the resident set
            self._stale_peak = None
        except OSError:
            self._stale_peak = _status_bytes("VmHWM")

    def peak_memory_bytes(self) -> int | None:
        """Peak since ``reset_peak`` as torch counts it; torch does not count on CPUs."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        return None

    def device_memory_bytes(self) -> int | None:
        """What the device counts: all used on a GPU, the process's peak resident set on a CPU."""
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            return int(total - free)
        peak = _status_bytes("VmHWM")
        return None if peak == self._stale_peak else peak

    def memory_room(self) -> MemoryRoom | None:
        """What this rank has and what is left, now; None where it is not told."""
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            uuid = str(torch.cuda.get_device_properties(self._device).uuid)
            return MemoryRoom(f"{socket.gethostname()} {uuid}", int(total - free), int(free))
        resident = _status_bytes("VmRSS")
        if resident is None:
            return None
        return MemoryRoom(socket.gethostname(), resident, memory.available_memory_bytes())


def give_back_memory(device: torch.device) -> None:
    """Return to the system what earlier trials freed: kept by the allocator, it hides what a batch takes."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library than glibc
        pass


@dataclass(frozen=True)
class MemoryRoom:
    """The memory of one rank before a trial."""

    place: str  # the GPU, or the host: ranks of one place share it
    taken_bytes: int  # by this rank; on a GPU by all
    left_bytes: int


def memory_limits(rooms: Sequence[MemoryRoom | None]) -> tuple[int, ...] | None:
    """The memory that each rank may take: what it has, and an equal share of what its place has left."""
    known = [room for room in rooms if room is not None]
    if len(known) < len(rooms):
        return None
    limits = []
    for room in known:
        neighbours = [other.left_bytes for other in known if other.place == room.place]
        limits.append(room.taken_bytes + min(neighbours) // len(neighbours))
    return tuple(limits)


def _status_bytes(name: str) -> int | None:
    """A size of /proc/self/status."""
    try:
        with open("/proc/self/status") as file:  # noqa: PTH123  (a kernel file)
            for line in file:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
