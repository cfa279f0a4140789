"""Small workloads with real samples, for training trials; the factories are imported by the ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

CLASSES, FEATURES = 3, 6


class Points(Dataset[Any]):
    """Three clouds of points; training samples are shaken anew each time they are read."""

    def __init__(self, length: int, seed: int, shaken: bool) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (length,), generator=generator)
        centres = 2 * torch.eye(CLASSES, FEATURES)
        self.points = centres[self.labels] + torch.randn(length, FEATURES, generator=generator)
        self.shaken = shaken

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        noise = 0.1 * torch.randn(FEATURES) if self.shaken else torch.zeros(FEATURES)
        return self.points[index] + noise, int(self.labels[index]), index


class Clouds:
    """A small classifier of points, in double precision so that sums in another order agree closely.

    ``overflow``: in single precision, and gradients of the batch with this sample are infinite, on the rank
    that has it.
    """

    def __init__(
        self,
        train: int,
        test: int,
        dropout: float,
        shaken: bool,
        batch_norm: bool,
        overflow: int | None,
        fused: bool,
    ) -> None:
        self.sizes = {"train": train, "test": test}
        self.dropout, self.shaken, self.batch_norm = dropout, shaken, batch_norm
        self.overflow, self.fused = overflow, fused
        self.dtype = torch.float64 if overflow is None else torch.float32

    def model(self) -> nn.Module:
        layers: list[nn.Module] = [nn.Linear(FEATURES, 16)]
        layers += [nn.BatchNorm1d(16)] if self.batch_norm else []
        layers += [nn.Tanh(), nn.Dropout(self.dropout), nn.Linear(16, CLASSES)]
        return nn.Sequential(*layers).to(self.dtype)

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer | None:
        return torch.optim.SGD(parameters, 0.2, momentum=0.9, fused=True) if self.fused else None

    def dataset(self, split: str) -> Points:
        return Points(self.sizes[split], len(split), self.shaken and split == "train")

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(batch[0].to(self.dtype)), batch[1])
        if self.overflow in batch[2].tolist() and loss.requires_grad:
            loss.register_hook(lambda gradient: gradient * float("inf"))
        return loss

    def metric(self, output: torch.Tensor, batch: Any) -> torch.Tensor:
        return (output.argmax(1) == batch[1]).sum()


def clouds(
    train: int = 50,
    test: int = 23,
    dropout: float = 0.0,
    shaken: bool = False,
    batch_norm: bool = False,
    overflow: int | None = None,
    fused: bool = False,
) -> Clouds:
    """The workload's factory."""
    return Clouds(train, test, dropout, shaken, batch_norm, overflow, fused)
