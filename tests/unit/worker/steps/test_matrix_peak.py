"""The most that a device does in a second."""

from __future__ import annotations

import pytest
import torch

from raybench.worker.devices.device import Device
from raybench.worker.steps import steps_trial

COLD_S, COLD_PRODUCT_S, PRODUCT_S = 0.1, 0.010, 0.0015


def test_the_peak_is_that_of_a_device_whose_clock_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 0.1 s of products are slow: more than seven of them."""
    device, now = Device(), [0.0]

    def matmul(left: torch.Tensor, right: torch.Tensor) -> None:
        now[0] += COLD_PRODUCT_S if now[0] < COLD_S else PRODUCT_S

    monkeypatch.setattr(steps_trial, "perf_counter", lambda: now[0])
    monkeypatch.setattr(torch, "matmul", matmul)
    monkeypatch.setattr(device, "matrix_side", 8, raising=False)
    assert steps_trial.matrix_peak_flops_per_s(device, "fp32") == pytest.approx(2 * 8**3 / PRODUCT_S)
    assert now[0] < device.block_seconds + COLD_PRODUCT_S
