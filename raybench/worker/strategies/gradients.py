"""Gradients of a module, and what a rank's loss weighs so that their mean over ranks is right."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn


def gradients_of(module: nn.Module) -> Iterator[torch.Tensor]:
    """Of each trained parameter; zeros where it has none."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            yield (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).detach()


def sample_weight(samples: int, all_samples: int, world_size: int) -> float:
    """What a rank multiplies its mean loss by, so that the gradients' mean over ranks is exact.

    DDP and FSDP average gradients over ranks, as if each had the same number of samples. With b_r samples
    on rank r, B on all and n ranks, (1/n) sum_r w_r g_r is the gradient of the mean over all B samples
    exactly when w_r = n b_r / B. A rank without samples takes any batch at weight 0. With accumulation
    ``samples`` is of the micro-batch, ``all_samples`` of all micro-batches of all ranks.
    """
    return world_size * samples / all_samples
