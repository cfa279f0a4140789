"""Passes beside a training that leave no trace in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from raybench.worker.devices.base import Device


@contextmanager
def state_preserved(module: nn.Module, device: Device) -> Iterator[None]:
    """Buffers and generators are afterwards what they were: the training goes on as if nothing had been."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    with device.fork_rng():
        yield
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)
