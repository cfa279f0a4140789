"""DataParallel without GPUs: one process drives several devices that are all the same cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.nn.parallel import DataParallel

from raybench.worker.devices.device import Device
from raybench.worker.strategies import models


class DrivingDevice(Device):
    """A CPU that says it may be driven with others by one process; it counts memory as GPUs do."""

    def peaks_of(self, devices: Any) -> list[int]:
        return [1000 + device for device in devices]


class SplitBatches(DataParallel[Any]):
    """Splits each batch over its devices as DataParallel does, one device after the other."""

    def __init__(self, module: torch.nn.Module, device_ids: list[int], output_device: Any) -> None:
        super().__init__(module, [], output_device)
        self.number = len(device_ids)
        self.passes: list[int] = []  # samples of each device's pass

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        parts = batch.chunk(self.number)
        self.passes += [len(part) for part in parts]
        return torch.cat([self.module(part) for part in parts])


@contextmanager
def driven_on_cores() -> Iterator[None]:
    """Inside, dp takes the cores for the team's GPUs, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "device_ids", lambda team, device: list(range(team.size)))
        patch.setattr(models, "DataParallel", SplitBatches)
        yield
