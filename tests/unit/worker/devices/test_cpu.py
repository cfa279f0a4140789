"""What a CPU tells of its memory and its work, and what is set for it."""

from __future__ import annotations

import pytest
import torch

from raybench.spec.knobs import Setting
from raybench.worker.devices import open_device
from raybench.worker.devices.device import Device


def test_a_peak_that_cannot_be_reset_is_unknown_until_it_is_passed(monkeypatch):
    device = Device()
    peaks = [500, 500, 700]
    monkeypatch.setattr("raybench.worker.devices.device.status_bytes", lambda name: peaks.pop(0))
    monkeypatch.setattr("builtins.open", lambda *_: (_ for _ in ()).throw(PermissionError()))
    device.reset_peak()
    assert device.memory_peak().device is None
    assert device.memory_peak().device == 700


def test_the_device_of_a_cpu_is_opened():
    device = open_device(torch.device("cpu"))
    assert isinstance(device, Device)
    assert (device.kind, device.data_backend) == ("cpu", "gloo")


def test_the_number_of_threads_is_the_settings_or_the_workers():
    device, before = Device(), torch.get_num_threads()
    try:
        device.activate(Setting(num_threads=2), 1)
        assert torch.get_num_threads() == 2
        device.activate(Setting(), 1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_generators_are_afterwards_as_they_were():
    before = torch.get_rng_state()
    with Device().fork_rng():
        torch.manual_seed(1)
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_utilization_is_the_share_of_the_cores(monkeypatch):
    worked, passed = iter([1.0, 3.0]), iter([100.0, 110.0])
    monkeypatch.setattr("raybench.worker.devices.device.process_time", lambda: next(worked))
    monkeypatch.setattr("raybench.worker.devices.device.perf_counter", lambda: next(passed))
    meter = Device().utilization_meter(2)
    meter.after_step()
    assert meter.mean() == pytest.approx(2 / 20)
