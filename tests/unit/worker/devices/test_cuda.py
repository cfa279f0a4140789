"""What a GPU tells, with the driver's library and torch's CUDA calls in fake: no GPU is needed."""

# ruff: noqa: N802  (NVML names its functions so)

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from raybench.errors import InvalidTrialError
from raybench.machine import gpus
from raybench.records.results import NUMANode, PCIeLink
from raybench.spec.knobs import Setting
from raybench.worker.devices import open_device
from raybench.worker.devices.cuda import CUDADevice, have_nccl_log
from raybench.worker.devices.device import MemoryPeak
from tests.unit.worker.fake_cuda import GIB, FakeMemory


def test_amds_gpus_are_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1")
    with pytest.raises(InvalidTrialError, match=r"AMD.*ROCm 7\.1"):
        open_device(torch.device("cuda:0"))


class FakeNVML:
    """Answers for one GPU, by its UUID."""

    def __init__(self, reasons: int = 0) -> None:
        self.reasons, self.utilization, self.lanes = reasons, 40, 8
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

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:
        return 4

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:
        return self.lanes

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: str) -> int:
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: str) -> int:
        return 16

    def nvmlDeviceGetPciInfo(self, handle: str) -> Any:
        return SimpleNamespace(busId=b"00000000:3B:00.0")

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=self.utilization)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeMemory:
    """80 GiB, of which NCCL and others have 2."""
    memory = FakeMemory(others=2 * GIB)
    for name, fake in memory.functions().items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return memory


def open_gpu(monkeypatch: pytest.MonkeyPatch, nvml: FakeNVML | None) -> CUDADevice:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    return CUDADevice(torch.device("cuda", 3))


def test_counters_are_those_of_the_gpu_with_its_uuid(gpu, monkeypatch):
    nvml = FakeNVML()
    device = open_gpu(monkeypatch, nvml)
    assert nvml.opened == ["GPU-abc-3"]
    assert (device.clock_mhz(), device.energy_joules()) == (1980.0, 12.5)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [(0, False), (0x1, False), (0x4, False), (0x8, True), (0x20, True), (0x44, True), (0x80, True)],
)
def test_heat_and_hardware_throttle_idling_and_the_power_cap_do_not(gpu, monkeypatch, reasons, expected):
    assert open_gpu(monkeypatch, FakeNVML(reasons)).throttled() is expected


def test_the_link_to_the_host_is_known_with_what_it_could_be(gpu, monkeypatch):
    nvml = FakeNVML()
    device = open_gpu(monkeypatch, nvml)
    assert device.pcie_link() == PCIeLink(generation=4, lanes=8, most_generation=5, most_lanes=16)
    nvml.lanes = 0  # as a virtual machine may say
    assert device.pcie_link() is None
    assert open_gpu(monkeypatch, None).pcie_link() is None


def test_the_numa_node_is_that_of_the_gpus_address(gpu, monkeypatch):
    monkeypatch.setattr(gpus, "cores_near", {"00000000:3B:00.0": (1, 0), "": None}.get)
    assert open_gpu(monkeypatch, FakeNVML()).numa_node() == NUMANode(node=1, cores=0)
    assert open_gpu(monkeypatch, None).numa_node() is None


def test_without_the_drivers_library_nothing_is_told(gpu, monkeypatch):
    device = open_gpu(monkeypatch, None)  # importing it raises
    told = (device.clock_mhz(), device.throttled(), device.energy_joules())
    assert told == (None,) * 3


def test_memory_is_that_of_torch_and_that_of_the_gpu(gpu, monkeypatch):
    device = open_gpu(monkeypatch, None)
    gpu.take(18 * GIB)
    assert device.memory_peak() == MemoryPeak(torch=18 * GIB, device=20 * GIB)
    memory = device.available_memory()
    assert memory is not None
    assert (memory.taken_bytes, memory.left_bytes) == (20 * GIB, 60 * GIB)
    assert memory.place.endswith(" abc-3")


def test_what_was_freed_before_is_in_no_peak(gpu, monkeypatch):
    """A whole model stepped, and is gone; what is measured takes 10 GiB beside the 5 that stay."""
    device = open_gpu(monkeypatch, None)
    gpu.take(5 * GIB)
    gpu.take(70 * GIB)
    gpu.free(70 * GIB)
    device.reset_peak()
    gpu.take(10 * GIB)
    gpu.free(10 * GIB)
    assert device.memory_peak() == MemoryPeak(torch=15 * GIB, device=17 * GIB)


@pytest.fixture
def switches() -> Iterator[tuple[Any, ...]]:
    """Torch's for TF32: the one for all, then those of products, convolutions and recurrent layers."""
    backends: Any = torch.backends
    several = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    before = [each.fp32_precision for each in (backends, *several)]
    yield backends, *several
    torch.set_float32_matmul_precision("highest")
    backends.cudnn.allow_tf32 = True
    for each, value in zip((backends, *several), before, strict=True):
        each.fp32_precision = value


def test_threads_are_torchs_own_unless_a_setting_names_some(gpu, monkeypatch, switches):
    now = [6]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[-1])
    monkeypatch.setattr(torch, "set_num_threads", now.append)
    device = open_gpu(monkeypatch, FakeNVML())
    for named in (0, 2, 0):
        device.activate(Setting(num_threads=named), 1)
    assert now == [6, 2, 6]


def activate(device: CUDADevice, precision: str) -> None:
    device.activate(Setting.model_validate({"precision": precision}), 1)


@pytest.mark.parametrize("is_opened_first", [True, False])
@pytest.mark.parametrize("own", [("highest", True), ("high", False)])
def test_tf32_is_off_on_or_as_code_has_set_it(gpu, monkeypatch, switches, own, is_opened_first):
    """A user's module is imported when the GPU is open."""
    opened = open_gpu(monkeypatch, None)
    torch.set_float32_matmul_precision(own[0])
    torch.backends.cudnn.allow_tf32 = own[1]
    device, chosen = opened if is_opened_first else open_gpu(monkeypatch, None), []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    asked = {"default": own, "fp32": ("highest", False), "tf32": ("high", True), "bf16": ("highest", False)}
    for precision in ("fp32", "default", "tf32", "default", "bf16", "default"):
        activate(device, precision)
        found = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
        assert found == asked[precision]
    assert set(chosen) == {device.torch_device}  # a workload may have chosen another


@pytest.mark.parametrize("place", [0, 1])
def test_torchs_newer_switches_are_the_settings_and_else_the_users(gpu, monkeypatch, switches, place):
    """Convolutions take the one for all where they have none of their own."""
    device = open_gpu(monkeypatch, None)
    switches[place].fp32_precision = "tf32"
    for precision, expected in (("fp32", "ieee"), ("tf32", "tf32"), ("bf16", "ieee"), ("default", "tf32")):
        activate(device, precision)
        assert {each.fp32_precision for each in switches[1:]} == {expected}


def test_a_gpu_without_tf32_is_not_measured_as_if_it_had_it(gpu, monkeypatch, switches):
    device = open_gpu(monkeypatch, None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(InvalidTrialError, match=r"tf32.*Tesla T4"):
        activate(device, "tf32")
    activate(device, "fp32")


def test_a_step_waits_at_lines_of_the_users_and_not_at_torchs_own(gpu, monkeypatch):
    """SyncBatchNorm picks ranks by a mask, whose size the host has to know."""
    for name in ("get_sync_debug_mode", "set_sync_debug_mode"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: 0)

    def step() -> None:
        for file, line in (("/home/a/train.py", 12), (torch.nn.modules._functions.__file__, 81)):
            warnings.warn_explicit("called a synchronizing CUDA operation", UserWarning, file, line)

    assert open_gpu(monkeypatch, None).host_waits(step) == {"train.py:12": 1}


def test_peaks_are_forgotten_on_the_gpus_that_dp_drives_too(gpu, monkeypatch):
    reset: list[int] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset.append)
    device = open_gpu(monkeypatch, None)
    gpu.take(7 * GIB)
    device.reset_peak((0, 3))
    assert sorted(reset) == [0, 3]
    assert device.peaks_of([0, 1]) == [7 * GIB, 7 * GIB]


def test_utilization_is_looked_at_once_a_second(gpu, monkeypatch):
    nvml, now = FakeNVML(), [100.0]
    monkeypatch.setattr("raybench.worker.devices.cuda.perf_counter", lambda: now[0])
    meter = open_gpu(monkeypatch, nvml).utilization_meter(cores=4)
    assert meter.mean() is None
    for seconds, percent in ((0.5, 10), (0.6, 20), (0.5, 30), (0.7, 40)):
        now[0] += seconds
        nvml.utilization = percent
        meter.after_step()
    assert meter.mean() == pytest.approx((0.20 + 0.40) / 2)


LOG = """node01:28:71 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
node01:28:71 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node01:28:71 [0] NCCL INFO Channel 00/0 : 9[1] -> 0[0] [receive] via NET/IB/0/GDRDMA/Shared
node01:28:71 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/0(3)/Shared
node01:28:71 [0] NCCL INFO Channel 02/0 : 9[1] -> 0[0] [receive] via NET/IB/1/GDRDMA(PCI)
node01:28:71 [0] NCCL INFO Channel 02/0 : 0[0] -> 8[0] [send] via NET/IB/1
node01:28:71 [0] NCCL INFO Channel 03/0 : 9[1] -> 0[0] [receive] via NET/AWS Libfabric/2/Shared
"""


def test_nccls_own_log_says_over_which_networks_it_receives(gpu, monkeypatch):
    """Below compute capability 8.0 NCCL sends without GPUDirect on purpose, where no NVLink is."""
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"):
        monkeypatch.setenv(name, "")  # is put back
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    log = have_nccl_log()
    device = CUDADevice(torch.device("cuda", 3), log)
    assert device.networks() is None  # nothing is connected yet
    Path(os.environ["NCCL_DEBUG_FILE"]).write_text(LOG)  # as NCCL opens it
    assert device.networks() == "AWS Libfabric, IB/GDRDMA"
    assert os.environ["NCCL_DEBUG_SUBSYS"] == "INIT,NET"  # and no collective
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    assert have_nccl_log() is None  # it is the user's
    assert CUDADevice(torch.device("cuda", 3)).networks() is None
    os.close(log)
