"""What a GPU tells, with the driver's library and torch's CUDA calls in fake: no GPU is needed."""

# ruff: noqa: N802  (NVML names its functions so)

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from raybench.worker.devices.base import MemoryPeak
from raybench.worker.devices.cuda import CUDADevice

GIB = 2**30


class FakeNVML:
    """Answers for one GPU, by its UUID."""

    def __init__(self, reasons: int = 0) -> None:
        self.reasons, self.utilization = reasons, 40
        self.opened: list[str] = []

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.opened.append(uuid)
        return uuid

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> float:
        return 1980.0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.reasons

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return 12_500

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=self.utilization)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes: dict[str, Any] = {
        "get_device_properties": lambda device: SimpleNamespace(uuid=f"abc-{torch.device(device).index}"),
        "mem_get_info": lambda device: (60 * GIB, 80 * GIB),
        "max_memory_allocated": lambda device: 7 * GIB,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)


def open_gpu(monkeypatch: pytest.MonkeyPatch, nvml: FakeNVML | None) -> CUDADevice:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    return CUDADevice(torch.device("cuda", 3))


def test_counters_are_those_of_the_gpu_with_its_uuid(gpu, monkeypatch):
    nvml = FakeNVML()
    device = open_gpu(monkeypatch, nvml)
    assert nvml.opened == ["GPU-abc-3"]
    assert (device.clock_mhz(), device.energy_joules(), device.utilization()) == (1980.0, 12.5, 0.4)


@pytest.mark.parametrize(("reasons", "expected"), [(0, False), (0x1, False), (0x4, True), (0x40, True)])
def test_an_idle_clock_is_not_throttled_a_hot_one_is(gpu, monkeypatch, reasons, expected):
    assert open_gpu(monkeypatch, FakeNVML(reasons)).throttled() is expected


def test_without_the_drivers_library_nothing_is_told(gpu, monkeypatch):
    device = open_gpu(monkeypatch, None)  # importing it raises
    told = (device.clock_mhz(), device.throttled(), device.energy_joules(), device.utilization())
    assert told == (None,) * 4


def test_memory_is_that_of_torch_and_that_of_the_gpu(gpu, monkeypatch):
    device = open_gpu(monkeypatch, None)
    assert device.memory_peak() == MemoryPeak(torch=7 * GIB, device=20 * GIB)
    memory = device.available_memory()
    assert memory is not None
    assert (memory.taken_bytes, memory.left_bytes) == (20 * GIB, 60 * GIB)
    assert memory.place.endswith(" abc-3")


def test_peaks_are_forgotten_on_the_gpus_that_dp_drives_too(gpu, monkeypatch):
    reset: list[int] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset.append)
    device = open_gpu(monkeypatch, None)
    device.reset_peak((0, 3))
    assert sorted(reset) == [0, 3]
    assert device.peaks_of([0, 1]) == [7 * GIB, 7 * GIB]


def test_utilization_is_looked_at_once_a_second(gpu, monkeypatch):
    nvml, now = FakeNVML(), [100.0]
    monkeypatch.setattr("raybench.worker.devices.cuda.perf_counter", lambda: now[0])
    meter = open_gpu(monkeypatch, nvml).utilization_meter(cores=4)
    meter.start()
    assert meter.mean() is None
    for seconds, percent in ((0.5, 10), (0.6, 20), (0.5, 30), (0.7, 40)):
        now[0] += seconds
        nvml.utilization = percent
        meter.after_step()
    meter.stop(2.3)
    assert meter.mean() == pytest.approx((0.20 + 0.40) / 2)
