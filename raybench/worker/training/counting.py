"""What the samples of a pass over the data add up to: loss and correct predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from raybench.errors import InvalidBatchError, InvalidTrialError
from raybench.workloads import Workload
from raybench.workloads.batch_counts import correct_of
from raybench.workloads.protocol import metric_of


@dataclass
class Sums:
    """What the samples of one pass add up to on this rank."""

    samples: int = 0
    loss: float = 0.0  # summed over samples
    correct: int | None = None  # None: the workload has no metric
    seconds: float = 0.0
    learning_rate: float = 0.0
    skipped_steps: int = 0  # left out by the gradient scaler


class Counter:
    """Adds up loss and correct predictions of a pass, on the device, without waiting for it."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        self._metric = metric_of(workload)
        self._output: Any = None
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        # over batches: the fewest correct predictions, and how many more than samples; both 0 where possible
        self._fewest, self._most_over = torch.zeros_like(self._correct), torch.zeros_like(self._correct)
        self._samples = 0

    def watch(self, module: nn.Module) -> Callable[[], None]:
        """See the outputs of ``module`` from here on; what comes back ends that."""
        return module.register_forward_hook(self._keep).remove

    def add(self, loss: torch.Tensor, batch: Any, num_samples: int) -> None:
        """Count a batch whose forward pass has just been made; one that stands in has no samples."""
        output, self._output = self._output, None
        if not num_samples:
            return
        with torch.no_grad():
            self._samples += num_samples
            self._loss += loss.detach().double() * num_samples
            if self._metric is not None:
                correct = correct_of(self._metric(output, batch))
                self._correct += correct
                self._fewest.clamp_(max=correct.to(self._fewest.device))
                self._most_over.clamp_(min=(correct - num_samples).to(self._fewest.device))

    def take(self, seconds: float, learning_rate: float = 0.0, skipped_steps: int = 0) -> Sums:
        """The sums so far, and begin anew. Raises ``InvalidBatchError`` where a metric cannot be."""
        correct = None if self._metric is None else int(self._correct)
        fewest, over = int(self._fewest), int(self._most_over)
        if fewest < 0 or over > 0:
            told = f"{fewest}" if fewest < 0 else f"{over} more than samples"
            raise InvalidBatchError(
                "metric(output, batch): correct predictions of the batch, from 0 to its samples "
                f"(received {told})"
            )
        sums = Sums(self._samples, float(self._loss), correct, seconds, learning_rate, skipped_steps)
        self._samples = 0
        self._loss.zero_()
        self._correct.zero_()
        return sums

    def _keep(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._output = output


def mean_loss(sums: Sequence[Sums]) -> float:
    """Over the samples of all ranks. Raises ``InvalidTrialError`` where it is not finite."""
    loss = sum(of_rank.loss for of_rank in sums) / sum(of_rank.samples for of_rank in sums)
    if not math.isfinite(loss):
        raise InvalidTrialError("the loss is not finite")
    return loss


def correct_predictions(sums: Sequence[Sums]) -> int | None:
    """Of all ranks; None: the workload has no metric."""
    counted = [of_rank.correct for of_rank in sums if of_rank.correct is not None]
    return sum(counted) if len(counted) == len(sums) else None
