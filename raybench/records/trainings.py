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

    small_batch: Count  # samples
    small_square: Ratio  # mean over the small batches
    big_batch: Count  # samples, of all small ones together
    big_square: Ratio

    @model_validator(mode="after")
    def _one_is_bigger(self) -> Self:
        if self.big_batch <= self.small_batch:
            raise ValueError(f"big_batch: above small_batch, {self.small_batch} (received {self.big_batch})")
        return self


class Epoch(Frozen):
    """One pass over the training samples, all ranks together."""

    epoch: Count  # from 1
    steps: Count  # of the optimizer
    skipped_steps: Whole = 0  # of these, left out by the scaler of fp16: a gradient was not finite
    samples: tuple[Samples, ...]  # that each rank trained on
    learning_rate: Finite  # of the first parameter group, in the epoch's last step
    train_loss: Finite  # mean over samples, each as the model was when it trained on it
    train_correct: Samples | None = None  # None: the workload has no metric
    train_s: Seconds  # on the slowest rank
    test_loss: Finite | None = None  # None: not evaluated after this epoch
    test_correct: Samples | None = None
    test_samples: Samples | None = None
    evaluation_s: Duration | None = None
    noise: tuple[GradientNorms, ...] = ()
    noise_s: Duration = 0.0
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

    epoch: Count  # after which
    pruner: Pruner
    compared: Count  # trainings that had come so far, this one included


class TrainingResult(Frozen):
    """What a complete training trial has."""

    kind: Literal["training"] = "training"
    epochs: tuple[Epoch, ...] = Field(min_length=1)
    global_batch_size: Count
    reference_batch: Count
    peak_learning_rate: Finite  # after scaling and warm-up
    setup_s: Duration
    resumed_after: Whole = 0  # epochs that came from a checkpoint
    stopped_by: Pruned | None = None  # None: all epochs were trained
    peak_memory_bytes: tuple[Bytes, ...] | None = None  # each rank, as torch counts it
    device_memory_bytes: tuple[Bytes, ...] | None = None  # as the device (CPU: the process) counts it
    device_utilization: tuple[Duration | None, ...] = ()  # each rank, while training; CPUs: of its cores
    weights_difference: Ratio | None = None  # largest between two ranks, at the end
    model: str | None = None  # where the trained model is, below the results directory
    missing: dict[str, str] = Field(default_factory=dict)  # what could not be had, and why

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
