"""Linear layers with ReLU between them, on random samples."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from raybench.spec.workloads import MLPSpec


class MLP:
    """Mean squared error against fixed random targets."""

    def __init__(self, spec: MLPSpec) -> None:
        self._spec = spec

    def model(self) -> nn.Module:
        """``num_layers`` Linear layers."""
        spec = self._spec
        widths = [spec.input_dim, *[spec.hidden_dim] * (spec.num_layers - 1), spec.output_dim]
        layers: list[nn.Module] = []
        for width_in, width_out in pairwise(widths):
            layers += [nn.Linear(width_in, width_out), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def batch(self, size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs of shape (size, input_dim) and targets of shape (size, output_dim)."""
        inputs = torch.randn(size, self._spec.input_dim, generator=generator)
        return inputs, torch.randn(size, self._spec.output_dim, generator=generator)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Mean squared error."""
        inputs, targets = batch
        return nn.functional.mse_loss(model(inputs), targets)
