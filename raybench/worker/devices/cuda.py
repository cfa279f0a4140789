"""A rank on a GPU: torch's CUDA calls, and NVML for what torch does not report."""

from __future__ import annotations

import gc
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity

from raybench.errors import InvalidTrialError
from raybench.machine import gpus
from raybench.machine.host import DeviceKind, host_id
from raybench.records.results import NUMANode, PCIeLink
from raybench.spec.knobs import Setting
from raybench.worker.devices.device import (
    AvailableMemory,
    Device,
    MemoryPeak,
    Moment,
    Stopwatch,
    UtilizationMeter,
)

PAUSE_CYCLES = 20_000_000  # by which the clock of a pause is known: some 10 ms

_CUDNN: Any = torch.backends.cudnn
TF32: tuple[Any, ...] = (torch.backends.cuda.matmul, _CUDNN.conv, _CUDNN.rnn)  # torch's switches of it

UTILIZATION_EVERY_S = 1.0  # the driver's own sample period is between 1/6 s and 1 s


class CUDADevice(Device):
    """The GPU of a process."""

    kind: DeviceKind = "cuda"
    data_backend = "nccl"
    block_seconds = 0.3  # a GPU's clock ramps
    clock_ramp_s = 0.1  # not measured yet: an H200 shows 345 MHz idle, 1980 at work
    matrix_side = 8192
    overcommits = False
    tells_utilization = True
    frees_waiting_ranks = False  # a rank in an NCCL kernel waits for ever
    # NCCL connects an algorithm, with its buffers, when it first takes it: for small messages, for large ones
    first_transfers: tuple[int, ...] = (1, 8 * 2**20)
    profiler_activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CPU, ProfilerActivity.CUDA)

    def __init__(self, device: torch.device, nccl_log: int | None = None) -> None:
        """``nccl_log``: the file to which NCCL logs, see ``have_nccl_log``."""
        self.torch_device = device
        self._own_tf32 = self._left_tf32 = _tf32()
        self._own_threads = torch.get_num_threads()
        self._nvml: Any = None
        self._handle: Any = None
        self._nccl_log = nccl_log
        self._cycles_per_s = 1e9  # until it is timed
        self._open_nvml()

    def name(self) -> str:
        """The model of the GPU."""
        return torch.cuda.get_device_name(self.torch_device)

    def activate(self, setting: Setting, threads: int) -> None:
        """Threads; tf32, for convolutions too; cuDNN's search for the fastest algorithms.

        Raises ``InvalidTrialError`` for tf32 on a GPU that computes in fp32 instead.
        """
        if setting.precision == "tf32" and torch.cuda.get_device_capability(self.torch_device) < (8, 0):
            raise InvalidTrialError(f"precision tf32 exists on GPUs from A100 on (received {self.name()})")
        super().activate(setting, self._own_threads)
        torch.cuda.set_device(self.torch_device)  # code written for one GPU may have chosen another
        switches = zip(self._own_tf32, _tf32(), self._left_tf32, strict=True)
        # one that is not as it was left was set by code of the user's since
        self._own_tf32 = [own if now == left else now for own, now, left in switches]
        self._left_tf32 = ["tf32" if setting.precision == "tf32" else "ieee"] * len(TF32)
        if setting.precision == "default":
            self._left_tf32 = self._own_tf32
        # torch's older switches first: they set the others too, and torch does not read one that differs
        torch.set_float32_matmul_precision("high" if self._left_tf32[0] == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = self._left_tf32[1] == "tf32"
        for switch, value in zip(TF32, self._left_tf32, strict=True):
            switch.fp32_precision = value
        torch.backends.cudnn.benchmark = setting.cudnn_benchmark

    def synchronize(self, devices: Sequence[int] = ()) -> None:
        """Wait until the GPU has done what it was given, and further ``devices`` of this process."""
        for index in {self.torch_device.index, *devices}:
            torch.cuda.synchronize(index)

    def stopwatch(self) -> CUDAStopwatch:
        """A new one."""
        return CUDAStopwatch(self.torch_device)

    def moment(self) -> Moment:
        """An event without a time, on the current stream."""
        return cast(Moment, torch.cuda.current_stream(self.torch_device).record_event())

    def tune_pause(self) -> None:
        """Time the cycles that a pause counts, at the clock of now: right after work."""
        event: Any = torch.cuda.Event
        began, ended = (event(enable_timing=True) for _ in range(2))
        began.record()
        torch.cuda._sleep(PAUSE_CYCLES)  # type: ignore[no-untyped-call]
        ended.record()
        self.synchronize()
        milliseconds: float = began.elapsed_time(ended)
        self._cycles_per_s = PAUSE_CYCLES / (milliseconds / 1e3)

    def pause(self, seconds: float) -> float:
        """A kernel that counts cycles of its clock, on the current stream; after ``tune_pause``."""
        torch.cuda._sleep(round(seconds * self._cycles_per_s))  # type: ignore[no-untyped-call]
        return seconds

    def random_state(self) -> torch.Tensor | None:
        """Where this GPU's generator stands."""
        return torch.cuda.get_rng_state(self.torch_device)

    def set_random_state(self, state: torch.Tensor) -> None:
        """Put this GPU's generator to where ``random_state`` found it."""
        torch.cuda.set_rng_state(state, self.torch_device)

    def reset_peak(self, devices: Sequence[int] = ()) -> None:
        """Forget earlier peaks, on further ``devices`` of this process too."""
        self.release_memory()
        for device in {self.torch_device.index, *devices}:
            torch.cuda.reset_peak_memory_stats(device)

    def memory_peak(self) -> MemoryPeak:
        """Torch's peak since ``reset_peak``, and the GPU's: the most that the allocator reserved since, and
        what others use now, NCCL and other processes among them.
        """
        device = self.torch_device
        peak = int(torch.cuda.max_memory_allocated(device))
        free, total = torch.cuda.mem_get_info(device)
        others = max(int(total - free) - int(torch.cuda.memory_reserved(device)), 0)
        return MemoryPeak(peak, int(torch.cuda.max_memory_reserved(device)) + others)

    def available_memory(self) -> AvailableMemory | None:
        """What is used of this GPU, and what it has left."""
        free, total = torch.cuda.mem_get_info(self.torch_device)
        place = f"{host_id()} {gpu_uuid(self.torch_device)}"
        return AvailableMemory(place, int(total - free), int(free))

    def release_memory(self) -> None:
        """Return what torch's allocator has kept to the GPU; reference cycles are freed first."""
        gc.collect()
        torch.cuda.empty_cache()

    def end_trial(self) -> None:
        """As ``release_memory``: DDP forms cycles, which hold a model until they are collected."""
        self.release_memory()

    def clock_mhz(self) -> float | None:
        """Of the streaming multiprocessors, right now."""
        clock: float | None = self._read("nvmlDeviceGetClockInfo", 1)  # 1: the streaming multiprocessors
        return clock

    def temperature_c(self) -> float | None:
        """Of the chip, right now."""
        degrees: float | None = self._read("nvmlDeviceGetTemperature", 0)  # 0: the chip, not its memory
        return degrees

    def host_waits(self, step: Callable[[], None]) -> dict[str, int] | None:
        """By torch's own warnings: of ``.item()``, ``.cpu()``, ``nonzero`` and their like.

        Not of SyncBatchNorm's and those of fp16's scaler, which have to wait. What a tensor waits for that is
        printed or formatted stands in torch's own files, and is the user's.
        """
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                step()
            finally:
                torch.cuda.set_sync_debug_mode(before)
        waits = [each for each in caught if _SYNCHRONIZES in str(each.message)]
        places = [(Path(each.filename), each.lineno) for each in waits]
        named = (place for place in places if not any(place[0].is_relative_to(each) for each in HAVE_TO_WAIT))
        return dict(Counter(f"{file.name}:{line}" for file, line in named))

    def throttled(self) -> bool | None:
        """Whether heat, a power brake or the hardware holds the clock down."""
        reasons = self._read("nvmlDeviceGetCurrentClocksThrottleReasons")
        # 0x8 hardware slowdown, 0x20 and 0x40 heat, 0x80 power brake. Not 0x4, the power cap: GPUs at full
        # load work at it by design
        return None if reasons is None else bool(reasons & (0x8 | 0x20 | 0x40 | 0x80))

    def pcie_link(self) -> PCIeLink | None:
        """As NVML reports it; "Max" is of GPU and slot together."""
        names = ("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration")
        told = [self._read(f"nvmlDeviceGet{name}") for name in (*names, "MaxPcieLinkWidth")]
        return PCIeLink(**dict(zip(PCIeLink.model_fields, told, strict=True))) if all(told) else None

    def numa_node(self) -> NUMANode | None:
        """By the kernel's files on its PCI address."""
        near = gpus.cores_near(gpus.address(self._read("nvmlDeviceGetPciInfo")))
        return None if near is None else NUMANode(node=near[0], cores=near[1])

    def networks(self) -> str | None:
        """By NCCL's log of what it connects."""
        return None if self._nccl_log is None else networks_in(_content(self._nccl_log))

    def energy_joules(self) -> float | None:
        """Energy since the driver was loaded."""
        millijoules = self._read("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def utilization_meter(self, cores: int) -> CUDAUtilizationMeter:
        """A new one."""
        return CUDAUtilizationMeter(lambda: self._read("nvmlDeviceGetUtilizationRates"))

    def _open_nvml(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = gpu_uuid(self.torch_device)
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


_SYNCHRONIZES = "synchronizing CUDA operation"  # in torch's warning, which names the line that runs
TORCH = Path(torch.__file__).parent
HAVE_TO_WAIT = (TORCH / "nn" / "modules" / "_functions.py", TORCH / "amp")


def have_nccl_log() -> int | None:
    """Have NCCL log what it connects, to memory of this process; None where the user has it log elsewhere.

    It logs nothing in the steps: of its subsystems that begin and connect, not of collectives.
    """
    if any(name.startswith("NCCL_DEBUG") for name in os.environ):
        return None
    file = os.memfd_create("nccl")
    subsystems = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    os.environ |= subsystems | {"NCCL_DEBUG_FILE": f"/proc/self/fd/{file}"}
    return file


def _content(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")


def networks_in(log: str) -> str | None:
    """The networks of NCCL's lines "... [receive] via NET/IB/0/GDRDMA/Shared", each once.

    On GPUs before A100 without NVLink NCCL sends without GPUDirect on purpose, and receives with it.
    """
    found = re.findall(r"\[receive\] via NET/([^/\n]+)/\d+(/GDRDMA)?", log)
    return ", ".join(sorted({"".join(each) for each in found})) or None


def _tf32() -> list[str]:
    return [switch.fp32_precision for switch in TF32]


class CUDAStopwatch(Stopwatch):
    """CUDA events on the current stream, so that the CPU may run ahead inside a block."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []
        self._used = 0

    def start(self) -> None:
        """Forget earlier marks and set the first one."""
        self._used = 0
        self.lap()

    def lap(self) -> None:
        """Record an event; events are made once and used again."""
        if self._used == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        self._events[self._used].record(torch.cuda.current_stream(self._device))
        self._used += 1

    def read(self) -> NDArray[np.float64]:
        """Times between successive events, in s; waits for the last one."""
        events = self._events[: self._used]
        events[-1].synchronize()
        return np.asarray([first.elapsed_time(second) / 1000 for first, second in pairwise(events)])


class CUDAUtilizationMeter(UtilizationMeter):
    """The driver's own samples, looked at about once a second."""

    def __init__(self, read_rates: Callable[[], Any]) -> None:
        self._read_rates, self._looked_s = read_rates, perf_counter()
        self._shares: list[float] = []

    def after_step(self) -> None:
        """Look, where a second has passed."""
        if perf_counter() - self._looked_s < UTILIZATION_EVERY_S:
            return
        self._looked_s = perf_counter()
        rates = self._read_rates()
        if rates is not None:  # percent of the driver's last sample period in which a kernel ran
            self._shares.append(rates.gpu / 100)

    def mean(self) -> float | None:
        """Share of the time in which a kernel ran, 0 to 1, mean over the looks."""
        return sum(self._shares) / len(self._shares) if self._shares else None


def gpu_uuid(device: torch.device | int) -> str:
    """The GPU's unique id."""
    return str(torch.cuda.get_device_properties(device).uuid)
