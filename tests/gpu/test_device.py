"""One GPU: its events against a kernel of known length, its memory, its driver's counters."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import pytest
import torch

from raybench.spec.knobs import Setting
from raybench.worker import devices
from raybench.worker.devices.cuda import CUDADevice
from raybench.worker.failures import is_out_of_memory
from raybench.worker.steps.meters import STRETCH_S, _use
from tests.gpu import needs_gpus

pytestmark = needs_gpus(1)
MIB, GIB = 2**20, 2**30


@pytest.fixture(scope="module")
def device() -> CUDADevice:
    with pytest.MonkeyPatch.context() as patch:
        # NCCL's log would be in the environment of all ranks that other tests start
        patch.setattr(devices, "have_nccl_log", lambda: None)
        opened = devices.open_device(torch.device("cuda", 0))
    assert isinstance(opened, CUDADevice)
    torch.cuda._sleep(10**9)  # until the clock has ramped
    opened.tune_pause()
    return opened


def test_laps_are_the_lengths_of_the_pauses_and_not_of_the_calls(device):
    planted_s = (0.02, 0.06, 0.005, 0.04)
    watch = device.stopwatch()
    for _ in range(2):  # the events of the first time are used again
        device.synchronize()
        began = perf_counter()
        watch.start()
        for seconds in planted_s:
            device.pause(seconds)
            watch.lap()
        issued_s = perf_counter() - began
        laps = watch.read()
        elapsed_s = perf_counter() - began
        assert issued_s < sum(planted_s) / 4
        assert laps == pytest.approx(planted_s, rel=0.05)
        assert laps.sum() == pytest.approx(elapsed_s, rel=0.03, abs=0.002)


def test_a_moment_has_passed_when_the_work_before_it_is_done(device):
    device.synchronize()
    began = perf_counter()
    device.pause(0.2)
    moment = device.moment()
    assert not moment.query()
    assert perf_counter() - began < 0.1
    device.pause(0.2)
    moment.synchronize()
    assert moment.query()
    assert 0.19 < perf_counter() - began < 0.3
    device.synchronize()


def test_the_peak_of_the_gpu_is_without_what_the_cache_had_kept(device):
    memory = device.available_memory()
    assert memory is not None
    total = memory.taken_bytes + memory.left_bytes
    assert total == torch.cuda.mem_get_info(0)[1]
    large = memory.left_bytes // 2
    held = torch.empty(large, dtype=torch.uint8, device="cuda")
    del held  # it stays with the allocator
    cached = device.available_memory()
    assert cached is not None
    assert cached.taken_bytes >= large
    device.reset_peak()
    held = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    del held
    peak = device.memory_peak()
    assert peak.torch is not None
    assert peak.device is not None
    assert GIB <= peak.torch < GIB + 512 * MIB
    assert GIB <= peak.device < memory.taken_bytes + GIB + 512 * MIB
    device.release_memory()
    after = device.available_memory()
    assert after is not None
    assert after.taken_bytes < memory.taken_bytes + 512 * MIB


def test_memory_that_is_not_there_is_known_as_such(device):
    total = torch.cuda.mem_get_info(0)[1]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    assert is_out_of_memory(caught.value)
    device.release_memory()


def test_precision_is_what_is_computed_with(device):
    """Of products and of convolutions, by how far they are from float64's; TF32 has 10 bits, fp32 has 23."""
    if torch.cuda.get_device_capability(0) < (8, 0):
        pytest.skip("this GPU has no TF32")
    own = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
    found = {}
    for name in ("fp32", "tf32", "default"):
        device.activate(Setting.model_validate({"precision": name}), 1)
        found[name] = (_product_error(), _convolution_error())
    print(found)
    coarse = 1e-5
    assert [error > coarse for error in found["fp32"]] == [False, False]
    assert [error > coarse for error in found["tf32"]] == [True, True]
    assert [error > coarse for error in found["default"]] == [own[0] != "highest", own[1]]


def _product_error() -> float:
    generator = torch.Generator("cuda").manual_seed(1)
    one, other = (torch.randn(1024, 1024, device="cuda", generator=generator) for _ in range(2))
    return _apart(one @ other, one.double() @ other.double())


def _convolution_error() -> float:
    generator = torch.Generator("cuda").manual_seed(1)
    images = torch.randn(64, 64, 32, 32, device="cuda", generator=generator)
    weights = torch.randn(64, 64, 3, 3, device="cuda", generator=generator)
    convolve = torch.nn.functional.conv2d
    return _apart(convolve(images, weights), convolve(images.double(), weights.double()))


def _apart(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(found - exact) / torch.linalg.vector_norm(exact))


def test_the_link_of_a_gpu_at_work_is_no_more_than_it_could_be(device):
    torch.cuda._sleep(10**9)
    link = device.pcie_link()
    device.synchronize()
    if link is None:
        pytest.skip("this driver does not tell")
    print(link)
    assert link.generation <= link.most_generation
    assert link.lanes <= link.most_lanes


def test_counters_of_seconds_are_those_of_ten(device):
    """Energy and share of busy time of a stretch, as a trial takes them, against 10 s of the same kernel."""
    matrix = torch.randn(4096, 4096, device="cuda")

    def step() -> None:
        for _ in range(20):
            matrix @ matrix

    step_s = _step_s(device, step, 20)
    steps = int(10.0 / step_s)
    before = device.energy_joules()
    if before is None:
        pytest.skip("NVML tells no energy here")
    _step_s(device, step, steps)
    after = device.energy_joules()
    assert after is not None
    found = _use(step, step_s, device, STRETCH_S)
    print(f"{(after - before) / steps:.3f} J a step over 10 s, {found}")
    assert found.joules == pytest.approx((after - before) / steps, rel=0.1)
    assert found.utilization == pytest.approx(1.0, abs=0.1)
    for _ in range(20):
        step()
    clock, throttled = device.clock_mhz(), device.throttled()  # while there is work
    device.synchronize()
    assert clock is not None
    assert 100 < clock < 5000
    assert throttled in (False, True)


def _step_s(device: CUDADevice, step: Callable[[], None], number: int) -> float:
    device.synchronize()
    began = perf_counter()
    for _ in range(number):
        step()
    device.synchronize()
    return (perf_counter() - began) / number


def test_a_step_that_reads_a_value_waits_and_one_that_computes_does_not(device):
    values = torch.ones(1024, device="cuda")
    assert device.host_waits(lambda: values.add_(1.0)) == {}
    (line,) = (device.host_waits(lambda: values.sum().item()) or {}).items()
    assert line[0].startswith("test_device.py:")
    assert line[1] == 1
    assert device.host_waits(lambda: values.cpu()) != {}
    assert torch.cuda.get_sync_debug_mode() == 0
