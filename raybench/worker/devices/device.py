"""The interface of a device, implemented in ``cpu`` and ``cuda``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity

from raybench.machine.host import DeviceKind
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


class Stopwatch(Protocol):
    """Marks moments in a stream of work; the times between them are read when the work is done."""

    def start(self) -> None:
        """Forget earlier marks and set the first one."""

    def lap(self) -> None:
        """Set a mark after the work given so far."""

    def read(self) -> NDArray[np.float64]:
        """Times between successive marks, in s, shape ``(laps,)``; waits for the device."""


class Moment(Protocol):
    """A place in the work that was given to the device."""

    def passed(self) -> bool:
        """Whether the device has done all work before it."""

    def wait(self) -> None:
        """Until it has."""


class UtilizationMeter(Protocol):
    """How busy the device is from when this is made."""

    def after_step(self) -> None:
        """Look, where it is time to."""

    def mean(self) -> float | None:
        """Share of the device in use so far, 0 to 1; None where it is unknown."""


class Device(Protocol):
    """One rank's device, inherited from; what cannot be read is None."""

    kind: DeviceKind
    torch_device: torch.device
    data_backend: str  # of the process group that carries gradients
    block_seconds: float  # at least, of a block of steps
    clock_ramp_s: float  # of work, after which the clock is up again that may have fallen in a block's time
    matrix_side: int  # of square matrices whose product reaches the device's peak
    pins_memory: bool  # whether the copy of a batch from pinned memory overlaps with computing
    overcommits: bool  # gives memory that it has not, and ends the process that uses it
    tells_utilization: bool  # and the clock and temperature of this rank's device alone
    drives_several: bool  # whether one process may compute on several, as torch.nn.DataParallel does
    frees_waiting_ranks: bool  # whether a rank in a collective is freed when its group is destroyed
    first_transfers: tuple[int, ...]  # elements of the all-reduces that make a data group take its memory
    ddp_device_ids: list[torch.device] | None  # as DistributedDataParallel takes them
    profiler_activities: tuple[ProfilerActivity, ...]  # what torch.profiler is to watch

    def name(self) -> str:
        """The model of the device."""

    def activate(self, setting: Setting, threads: int) -> None:
        """Set what holds for the whole process: ``threads`` unless the setting names some, tf32, cuDNN.

        ``precision = "default"`` gives back what torch had for tf32 when the device was opened.
        """

    def synchronize(self, devices: Sequence[int] = ()) -> None:
        """Wait until the device has done what it was given, and further ``devices`` of this process."""

    def stopwatch(self) -> Stopwatch:
        """A new one: laps without synchronisation, read at the end."""

    def moment(self) -> Moment:
        """The end of all work given so far."""

    def tune_pause(self) -> None:
        """Time what a pause counts, when the device has just worked; nothing on CPUs."""
        return

    def pause(self, seconds: float) -> float:
        """Have the device idle for so long; how long it does, in s, as far as that is known."""

    def fork_rng(self) -> AbstractContextManager[None]:
        """Inside, torch's generators may be used and seeded; afterwards they are as they were."""

    def random_state(self) -> torch.Tensor | None:
        """Where the device's own generator stands; None: it has only torch's."""
        return None

    def set_random_state(self, state: torch.Tensor) -> None:
        """Put the device's own generator to where ``random_state`` found it."""
        return

    def reset_peak(self, devices: Sequence[int] = ()) -> None:
        """Forget earlier peaks of memory, on further ``devices`` of this process too.

        What was freed is returned first, or it counts as taken.
        """

    def memory_peak(self) -> MemoryPeak:
        """The peak since ``reset_peak``."""

    def peaks_of(self, devices: Sequence[int]) -> list[int]:
        """The peaks since ``reset_peak`` of ``devices`` of this process, as torch counts them, in bytes."""
        return []

    def available_memory(self) -> AvailableMemory | None:
        """What this rank has and what is left, now."""

    def release_memory(self) -> None:
        """Collect garbage and return what was freed: kept by the allocator, it hides what a batch takes."""

    def end_trial(self) -> None:
        """Return to the device what the trial freed, where others may want it."""
        return

    def clock_mhz(self) -> float | None:
        """The device's clock right now; on CPUs the mean over the cores."""

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
