"""Workloads for GPUs: a convolutional network, and one that holds so much memory for each sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

MIB = 2**20
CHANNELS = 32


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

    def __init__(self, mib: float = 0.0, waits: bool = False, synchronized: bool = False) -> None:
        """``waits``: each loss is read on the host; ``synchronized``: SyncBatchNorm."""
        self._mib, self._waits, self._synchronized = mib, waits, synchronized

    def model(self) -> nn.Module:
        normalizes = nn.SyncBatchNorm if self._synchronized else nn.BatchNorm2d
        first, second = nn.Conv2d(4, CHANNELS, 3), nn.Conv2d(CHANNELS, CHANNELS, 3)
        body = nn.Sequential(first, normalizes(CHANNELS), nn.ReLU(), second, nn.ReLU())
        return Network(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 10))

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
