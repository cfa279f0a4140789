"""Workloads for GPUs: a convolutional network, and one that holds so much memory for each sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

MIB = 2**20


class Network(nn.Module):
    """Of a class of its own: torch 2.11 does not compile a bare ``nn.Sequential``."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(values)
        return result


class Images:
    """Small images through two convolutions; ``mib`` MiB more are taken for each sample after the pass."""

    def __init__(
        self, mib: float = 0.0, channels: int = 32, waits: bool = False, synchronized: bool = False
    ) -> None:
        """``waits``: each loss is read on the host; ``synchronized``: SyncBatchNorm."""
        self._mib, self._channels, self._waits, self._synchronized = mib, channels, waits, synchronized

    def model(self) -> nn.Module:
        normalizes = nn.SyncBatchNorm if self._synchronized else nn.BatchNorm2d
        first, second = nn.Conv2d(4, self._channels, 3), nn.Conv2d(self._channels, self._channels, 3)
        body = nn.Sequential(first, normalizes(self._channels), nn.ReLU(), second, nn.ReLU())
        return Network(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(self._channels, 10))

    def batch(self, size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, 4, 16, 16, generator=generator), torch.randn(size, 10, generator=generator)

    def dataset(self, split: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(len(split))
        images, targets = self.batch(64, generator)
        return list(zip(images, targets, strict=True)) * 64

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        images, targets = batch
        loss = nn.functional.mse_loss(model(images), targets)
        if self._waits:
            loss.item()
        torch.empty(len(images), int(self._mib * MIB), dtype=torch.uint8, device=images.device)
        return loss


def images(**arguments: Any) -> Images:
    return Images(**arguments)
