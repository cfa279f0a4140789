"""Devices: what the worker needs of one, of CPU cores and of a GPU."""

from __future__ import annotations

import torch

from raybench.errors import InvalidTrialError
from raybench.worker.devices.cuda import CUDADevice, have_nccl_log
from raybench.worker.devices.device import Device
from raybench.worker.failures import watch_memory_of


def open_device(device: torch.device) -> Device:
    """What answers for ``device``; a GPU becomes this process's current one."""
    if device.type == "cuda":
        if torch.version.hip is not None:
            raise InvalidTrialError(f"AMD's GPUs are not measured yet (received ROCm {torch.version.hip})")
        torch.cuda.set_device(device)
        watch_memory_of(device)
        return CUDADevice(device, have_nccl_log())
    return Device()
