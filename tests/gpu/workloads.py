"""Workloads for GPUs: a convolutional network, and one that holds so much memory for each sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

MIB = 2**20


class Images:
    """Small images through two convolutions; ``mib`` MiB more are taken for each sample after the pass."""

    def __init__(self, mib: float = 0.0, channels: int = 32) -> None:
        self._mib, self._channels = mib, channels

    def model(self) -> nn.Module:
        first, second = nn.Conv2d(4, self._channels, 3), nn.Conv2d(self._channels, self._channels, 3)
        body = nn.Sequential(first, nn.BatchNorm2d(self._channels), nn.ReLU(), second, nn.ReLU())
        return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(self._channels, 10))

    def batch(self, size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, 4, 16, 16, generator=generator), torch.randn(size, 10, generator=generator)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        images, targets = batch
        loss = nn.functional.mse_loss(model(images), targets)
        torch.empty(len(images), int(self._mib * MIB), dtype=torch.uint8, device=images.device)
        return loss


def images(**arguments: Any) -> Images:
    return Images(**arguments)
