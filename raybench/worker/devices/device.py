"""A rank's device: the cores of its process, and what a GPU has in their place in ``cuda``."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time, sleep

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity

from raybench.machine import host
from raybench.machine.host import DeviceKind, host_id
from raybench.records.results import NUMANode, PCIeLink
from raybench.spec.knobs import Setting


@dataclass(frozen=True)
class AvailableMemory:
    """The memory of one rank before a trial."""

    place: str  # the GPU, or the host: ranks of one place share it
    taken_bytes: int  # by this rank; on a GPU by all
    left_bytes: int


@dataclass(frozen=True)
class MemoryPeak:
    """The most memory that one rank took, in bytes; None where unknown."""

    torch: int | None  # as torch counts it; torch does not count on CPUs
    # on a GPU what torch's allocator reserved and what all others use; on a CPU the peak resident set
    device: int | None


class Stopwatch:
    """Marks moments in a stream of work; the times between them are read when the work is done.

    On CPUs it is done when the call returns.
    """

    def __init__(self) -> None:
        self._marks: list[float] = []

    def start(self) -> None:
        """Forget earlier marks and set the first one."""
        self._marks = [perf_counter()]

    def lap(self) -> None:
        """Set a mark after the work given so far."""
        self._marks.append(perf_counter())

    def read(self) -> NDArray[np.float64]:
        """Times between successive marks, in s, shape ``(laps,)``; waits for the device."""
        return np.diff(np.asarray(self._marks))


class Moment:
    """A place in the work that was given to the device, as torch.cuda.Event is one; on CPUs that is done when
    the call returns.
    """

    def query(self) -> bool:
        """Whether the device has done all work before it."""
        return True

    def synchronize(self) -> None:
        """Wait until it has."""


class UtilizationMeter:
    """How busy the device is from when this is made: of a rank on CPUs the share of its cores."""

    def __init__(self, cores: int) -> None:
        self._cores, self._began_s, self._worked_s = cores, perf_counter(), process_time()

    def after_step(self) -> None:
        """Look, where it is time to: of a process the kernel counts."""

    def mean(self) -> float | None:
        """Share of the device in use so far, 0 to 1; None where it is unknown."""
        worked_s = process_time() - self._worked_s
        return worked_s / ((perf_counter() - self._began_s) * self._cores)


class Device:
    """One rank's device. This one is CPU cores; a GPU overrides it. What cannot be read is None."""

    kind: DeviceKind = "cpu"
    data_backend = "gloo"  # of the process group that carries gradients
    block_seconds = 0.15  # at least, of a block of steps
    clock_ramp_s = 0.0  # of work, after which the clock is up again that may have fallen in a block's time
    matrix_side = 1024  # of square matrices whose product reaches the device's peak
    overcommits = True  # gives memory that it has not, and ends the process that uses it
    tells_utilization = False  # and the clock and temperature of this rank's device alone
    frees_waiting_ranks = True  # whether a rank in a collective is freed when its group is destroyed
    # elements of the all-reduces that make a data group take its memory
    first_transfers: tuple[int, ...] = (1,)
    profiler_activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CPU,)  # that torch.profiler watches

    def __init__(self) -> None:
        _keep_freed_memory()
        self.torch_device = torch.device("cpu")
        self._stale_peak: int | None = None  # of the resident set, where it could not be forgotten

    def name(self) -> str:
        """The model of the device."""
        return host.cpu_model()

    def activate(self, setting: Setting, threads: int) -> None:
        """Set what holds for the whole process: ``threads`` unless the setting names some; GPUs' switches.

        ``precision = "default"`` leaves tf32 as the user's code has set it.
        """
        wanted = setting.num_threads or threads
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)

    def synchronize(self, devices: Sequence[int] = ()) -> None:
        """Wait until the device has done what it was given, and further ``devices`` of this process."""

    def stopwatch(self) -> Stopwatch:
        """A new one: laps without synchronisation, read at the end."""
        return Stopwatch()

    def moment(self) -> Moment:
        """The end of all work given so far."""
        return Moment()

    def tune_pause(self) -> None:
        """Time what a pause counts, when the device has just worked; nothing on CPUs."""

    def pause(self, seconds: float) -> float:
        """Have the device idle for so long; how long it does, in s, as far as that is known.

        On CPUs this thread sleeps, and the system adds to it.
        """
        began = perf_counter()
        sleep(seconds)
        return perf_counter() - began

    def fork_rng(self) -> AbstractContextManager[None]:
        """Inside, torch's generators may be used and seeded; afterwards they are as they were."""
        return torch.random.fork_rng(devices=[self.torch_device] if self.kind == "cuda" else [])

    def random_state(self) -> torch.Tensor | None:
        """Where the device's own generator stands; None: it has only torch's."""
        return None

    def set_random_state(self, state: torch.Tensor) -> None:
        """Put the device's own generator to where ``random_state`` found it."""

    def reset_peak(self, devices: Sequence[int] = ()) -> None:
        """Forget earlier peaks of memory, on further ``devices`` of this process too.

        What was freed is returned first, or it counts as taken. Where the kernel does not let the high-water
        mark of the resident set be forgotten, it is remembered.
        """
        _return_freed_memory()
        try:
            with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123  (a kernel file)
                file.write("5")
            self._stale_peak = None
        except OSError:
            self._stale_peak = status_bytes("VmHWM")

    def memory_peak(self) -> MemoryPeak:
        """The peak since ``reset_peak``."""
        peak = status_bytes("VmHWM")
        return MemoryPeak(torch=None, device=None if peak == self._stale_peak else peak)

    def peaks_of(self, devices: Sequence[int]) -> list[int]:
        """The peaks since ``reset_peak`` of ``devices`` of this process, as torch counts them, in bytes.

        ``devices``: GPUs.
        """
        return [torch.cuda.max_memory_allocated(device) for device in devices]

    def available_memory(self) -> AvailableMemory | None:
        """What this rank has and what is left, now: on CPUs the resident set, and the host's."""
        resident = status_bytes("VmRSS")
        if resident is None:
            return None
        return AvailableMemory(host_id(), resident, host.available_memory_bytes())

    def release_memory(self) -> None:
        """Collect garbage and return what was freed: kept by the allocator, it hides what a batch takes."""
        gc.collect()
        _return_freed_memory()

    def end_trial(self) -> None:
        """Return to the device what the trial freed, where others may want it."""

    def clock_mhz(self) -> float | None:
        """The device's clock right now; on CPUs the mean over the cores."""
        frequency = psutil.cpu_freq()
        return float(frequency.current) if frequency else None

    def temperature_c(self) -> float | None:
        """In degrees Celsius, right now."""
        return None

    def host_waits(self, step: Callable[[], None]) -> dict[str, int] | None:
        """Take a ``step``: lines of code at which it waits for the device, and how often; None on CPUs."""
        return None

    def throttled(self) -> bool | None:
        """Whether heat, a power brake or the hardware holds the clock down; not a power cap."""
        return None

    def pcie_link(self) -> PCIeLink | None:
        """The link to the host, now: that of an idle device may be slower."""
        return None

    def numa_node(self) -> NUMANode | None:
        """The GPU's node on a host of several, and its cores that this process may use; None on CPUs."""
        return None

    def networks(self) -> str | None:
        """Over which networks the data groups of this process were connected so far."""
        return None

    def energy_joules(self) -> float | None:
        """Energy since the driver was loaded."""
        return None

    def utilization_meter(self, cores: int) -> UtilizationMeter:
        """A new one, for a rank that has ``cores``."""
        return UtilizationMeter(cores)


def _keep_freed_memory() -> None:
    """Have the C library keep for the next step what a step frees, as a GPU's allocator does.

    glibc's own way is to return the end of the heap whenever some MiB are free there, and to take it back
    with a page fault for every 4 KiB: whether a step pays for none or for thousands depends on where the
    heap happens to end, in each start and in each trial. Who sets malloc by variables is left alone.
    """
    if host.sets_malloc(os.environ):
        return
    with suppress(OSError, AttributeError):  # another C library than glibc
        for parameter, value in host.KEPT_BY_MALLOC.values():
            ctypes.CDLL(None).mallopt(parameter, value)


def _return_freed_memory() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def status_bytes(name: str) -> int | None:
    """A size of /proc/self/status."""
    kibibytes = host.first_match(Path("/proc/self/status"), rf"^{name}:\s*(\d+)")
    return int(kibibytes) * 1024 if kibibytes else None
