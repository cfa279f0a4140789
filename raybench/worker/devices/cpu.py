"""A rank on CPU cores."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from time import perf_counter, process_time, sleep

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity

from raybench.machine import host
from raybench.machine.host import DeviceKind, host_id
from raybench.spec.knobs import Setting
from raybench.worker.devices.device import AvailableMemory, Device, MemoryPeak


class CPUDevice(Device):
    """The cores of a process."""

    kind: DeviceKind = "cpu"
    data_backend = "gloo"
    block_seconds = 0.15
    clock_ramp_s = 0.0
    matrix_side = 1024
    pins_memory = False
    overcommits = True
    tells_utilization = False
    drives_several = False
    frees_waiting_ranks = True
    first_transfers: tuple[int, ...] = (1,)
    ddp_device_ids: list[torch.device] | None = None
    profiler_activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CPU,)

    def __init__(self) -> None:
        _keep_freed_memory()
        self.torch_device = torch.device("cpu")
        self._stale_peak: int | None = None  # of the resident set, where it could not be forgotten

    def name(self) -> str:
        """The model of the processor."""
        return host.cpu_model()

    def activate(self, setting: Setting, threads: int) -> None:
        """The number of threads."""
        wanted = setting.num_threads or threads
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)

    def synchronize(self, devices: Sequence[int] = ()) -> None:
        """Nothing: the work is done when the call returns."""

    def stopwatch(self) -> CPUStopwatch:
        """A new one."""
        return CPUStopwatch()

    def moment(self) -> CPUMoment:
        """Now: the work is done."""
        return CPUMoment()

    def pause(self, seconds: float) -> float:
        """Sleep; the system adds to it."""
        began = perf_counter()
        sleep(seconds)
        return perf_counter() - began

    def fork_rng(self) -> AbstractContextManager[None]:
        """Inside, torch's generator may be used; afterwards it is as it was."""
        return torch.random.fork_rng(devices=[])

    def reset_peak(self, devices: Sequence[int] = ()) -> None:
        """Forget the high-water mark of the resident set; where the kernel refuses, remember it."""
        _return_freed_memory()
        try:
            with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123  (a kernel file)
                file.write("5")
            self._stale_peak = None
        except OSError:
            self._stale_peak = status_bytes("VmHWM")

    def memory_peak(self) -> MemoryPeak:
        """The process's peak resident set since ``reset_peak``."""
        peak = status_bytes("VmHWM")
        return MemoryPeak(torch=None, device=None if peak == self._stale_peak else peak)

    def available_memory(self) -> AvailableMemory | None:
        """The resident set, and what the host has left."""
        resident = status_bytes("VmRSS")
        if resident is None:
            return None
        return AvailableMemory(host_id(), resident, host.available_memory_bytes())

    def release_memory(self) -> None:
        """Let the C library return what was freed to the system; reference cycles are freed first."""
        gc.collect()
        _return_freed_memory()

    def clock_mhz(self) -> float | None:
        """Mean over the cores."""
        frequency = psutil.cpu_freq()
        return float(frequency.current) if frequency else None

    def utilization_meter(self, cores: int) -> CPUUtilizationMeter:
        """A new one, for a rank that has ``cores``."""
        return CPUUtilizationMeter(cores)


class CPUStopwatch:
    """``perf_counter``: on CPUs the work is done when the call returns."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def start(self) -> None:
        """Forget earlier marks and set the first one."""
        self._marks = [perf_counter()]

    def lap(self) -> None:
        """Set a mark."""
        self._marks.append(perf_counter())

    def read(self) -> NDArray[np.float64]:
        """Times between successive marks, in s."""
        return np.diff(np.asarray(self._marks))


class CPUMoment:
    """On CPUs the work is done when the call returns."""

    def passed(self) -> bool:
        """Yes."""
        return True

    def wait(self) -> None:
        """For nothing."""


class CPUUtilizationMeter:
    """The process's time on the rank's cores."""

    def __init__(self, cores: int) -> None:
        self._cores, self._began_s, self._worked_s = cores, perf_counter(), process_time()

    def after_step(self) -> None:
        """Nothing: the kernel counts."""

    def mean(self) -> float:
        """Share of the cores in use since then."""
        worked_s = process_time() - self._worked_s
        return worked_s / ((perf_counter() - self._began_s) * self._cores)


def _keep_freed_memory() -> None:
    """Have the C library keep for the next step what a step frees, as a GPU's allocator does.

    glibc's own way is to return the end of the heap whenever some MiB are free there, and to take it back
    with a page fault for every 4 KiB: whether a step pays for none or for thousands depends on where the
    heap happens to end, in each start and in each trial. Who sets malloc by variables is left alone.
    """
    if any(name.startswith(host.MALLOC_PREFIX) or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library than glibc
        return
    for parameter, value in host.KEPT_BY_MALLOC.values():
        mallopt(parameter, value)


def _return_freed_memory() -> None:
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass


def status_bytes(name: str) -> int | None:
    """A size of /proc/self/status."""
    kibibytes = host.first_match(Path("/proc/self/status"), rf"^{name}:\s*(\d+)")
    return int(kibibytes) * 1024 if kibibytes else None
