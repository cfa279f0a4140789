"""What a training trial brings: epochs, with losses, accuracies and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from raybench.records.base import (
    Bytes,
    Count,
    Duration,
    Finite,
    Frozen,
    Ratio,
    Samples,
    Seconds,
    Whole,
)
from raybench.spec.study import Pruner


class GradientNorms(Frozen):
    """Squared norms of the gradients of one big batch and of the small ones that it consists of."""

    #: samples of a small batch
    small_batch: Count
    #: squared norm of its gradient, mean over the small batches
    small_square: Ratio
    #: samples of all small batches together
    big_batch: Count
    #: squared norm of their averaged gradient
    big_square: Ratio

    @model_validator(mode="after")
    def _one_is_bigger(self) -> Self:
        if self.big_batch <= self.small_batch:
            raise ValueError(f"big_batch: above small_batch, {self.small_batch} (received {self.big_batch})")
        return self


class Epoch(Frozen):
    """One pass over the training samples, all ranks together."""

    #: number of the epoch, from 1
    epoch: Count
    #: steps of the optimizer
    steps: Count
    #: of these, left out by the gradient scaler of fp16 as a gradient was not finite
    skipped_steps: Whole = 0
    #: samples that each rank trained on
    samples: tuple[Samples, ...]
    #: learning rate of the first parameter group, in the epoch's last step
    learning_rate: Finite
    #: mean over samples, each as the model was when it trained on it
    train_loss: Finite
    #: correct predictions; null: the workload has no `metric`
    train_correct: Samples | None = None
    #: time of training on the slowest rank, in s
    train_s: Seconds
    #: mean over the test samples; null: not evaluated after this epoch
    test_loss: Finite | None = None
    #: correct predictions of the test samples
    test_correct: Samples | None = None
    #: number of test samples
    test_samples: Samples | None = None
    #: time of the evaluation, in s
    evaluation_s: Duration | None = None
    #: squared norms of gradients, for the gradient noise scale
    noise: tuple[GradientNorms, ...] = ()
    #: time that this took, in s; not part of the epoch
    noise_s: Duration = 0.0
    #: time of the checkpoint, in s; not part of the epoch
    checkpoint_s: Duration = 0.0

    @model_validator(mode="after")
    def _has_samples(self) -> Self:
        if not sum(self.samples):
            raise ValueError("samples: above 0 in all")
        if (self.train_correct or 0) > sum(self.samples):
            raise ValueError(f"train_correct: at most {sum(self.samples)} (received {self.train_correct})")
        if (self.test_correct or 0) > (self.test_samples or 0):
            raise ValueError(f"test_correct: at most {self.test_samples} (received {self.test_correct})")
        return self

    @property
    def train_accuracy(self) -> float | None:
        """Share of the training samples, 0 to 1."""
        return None if self.train_correct is None else self.train_correct / sum(self.samples)

    @property
    def test_accuracy(self) -> float | None:
        """Share of the test samples, 0 to 1."""
        if self.test_correct is None or not self.test_samples:
            return None
        return self.test_correct / self.test_samples

    @property
    def elapsed_s(self) -> float:
        """Training and evaluation, as a user waits for them; what raybench measures beside is left out."""
        return self.train_s + (self.evaluation_s or 0.0)

    def words(self, num_epochs: int) -> str:
        """One line: "epoch 2/3, test accuracy 81.2%"."""
        words = f"epoch {self.epoch}/{num_epochs}"
        if self.test_accuracy is not None:
            return f"{words}, test accuracy {self.test_accuracy:.1%}"
        if self.test_loss is not None:
            return f"{words}, test loss {self.test_loss:.4g}"
        return f"{words}, training loss {self.train_loss:.4g}"


# Evaluated epochs of one training, each with its score, the larger the better: the test accuracy, without
# one the negative test loss.
LearningCurve = tuple[tuple[Count, Finite], ...]


def learning_curve(epochs: Sequence[Epoch]) -> LearningCurve:
    """The scores of the evaluated ones of ``epochs``."""
    scores = ((each.epoch, each.test_accuracy, each.test_loss) for each in epochs)
    return tuple(
        (epoch, accuracy if accuracy is not None else -loss)
        for epoch, accuracy, loss in scores
        if loss is not None
    )


class Pruned(Frozen):
    """Why a training was stopped early."""

    #: epoch after which it was stopped
    epoch: Count
    #: pruner that stopped it
    pruner: Pruner
    #: trainings that had come as far, itself included
    compared: Count


class TrainingResult(Frozen):
    """What a complete training trial has."""

    kind: Literal["training"] = "training"
    #: one entry an epoch
    epochs: tuple[Epoch, ...] = Field(min_length=1)
    #: samples of all devices in an optimizer step
    global_batch_size: Count
    #: samples to which the study's learning rate belongs
    reference_batch: Count
    #: learning rate after scaling and warm-up
    peak_learning_rate: Finite
    #: time of setting up, in s
    setup_s: Duration
    #: epochs that came from a checkpoint
    resumed_after: Whole = 0
    #: why it was stopped early; null: all epochs were trained
    stopped_by: Pruned | None = None
    #: memory of each rank, as torch counts it
    peak_memory_bytes: tuple[Bytes, ...] | None = None
    #: memory of each rank, as the device (on CPUs the process) counts it; on GPUs in the first epoch
    device_memory_bytes: tuple[Bytes, ...] | None = None
    #: busy share of each rank's device while training, 0 to 1
    device_utilization: tuple[Duration | None, ...] = ()
    #: the largest difference of a weight between two ranks, at the end
    weights_difference: Ratio | None = None
    #: where the trained model is, below the results directory; null: it was not kept
    model: str | None = None
    #: what could not be had, each with the reason
    missing: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_each_rank(self) -> Self:
        ranks = len(self.epochs[0].samples)
        of_ranks = {
            "peak_memory_bytes": self.peak_memory_bytes,
            "device_memory_bytes": self.device_memory_bytes,
            "device_utilization": self.device_utilization,
            **{f"epochs.{place}.samples": each.samples for place, each in enumerate(self.epochs)},
        }
        for name, values in of_ranks.items():
            if values and len(values) != ranks:
                raise ValueError(f"{name}: one of each of {ranks} ranks (received {len(values)})")
        return self
