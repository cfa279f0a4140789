"""The learning rates of a training trial: the optimizer's own, scaled to the batch, and its schedule."""

from __future__ import annotations

import torch

from raybench.records.requests import TrainingRequest


class LearningRates:
    """Sets the rates of an optimizer, step by step."""

    def __init__(self, request: TrainingRequest, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` as it was made: its rates are those of one device at the reference batch."""
        self._spec = request.training
        self._base = [float(group["lr"]) for group in optimizer.param_groups]
        batch = request.config.global_batch_size
        self._factor = self._spec.learning_rate_factor(batch, request.reference_batch)

    @property
    def peak(self) -> float:
        """Of the first parameter group, after scaling and warm-up."""
        return self._base[0] * self._factor

    def set(self, optimizer: torch.optim.Optimizer, step: int, steps_per_epoch: int) -> float:
        """Set the rates of optimizer step ``step``, from 0 over all epochs. Returns the first group's."""
        factor = self._factor * self._spec.schedule_factor(step, steps_per_epoch)
        for group, rate in zip(optimizer.param_groups, self._base, strict=True):
            group["lr"] = rate * factor
        return self._base[0] * factor
