"""Devices: the interface that the worker needs, for a CPU and for a GPU."""

from __future__ import annotations

import torch

from raybench.worker.devices.cpu import CPUDevice
from raybench.worker.devices.cuda import CUDADevice
from raybench.worker.devices.device import Device


def open_device(device: torch.device) -> Device:
    """What answers for ``device``; a GPU becomes this process's current one."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        return CUDADevice(device)
    return CPUDevice()
