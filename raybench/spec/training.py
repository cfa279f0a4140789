"""``[training]`` of a study: whole epochs with evaluation, after the steps were measured."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from raybench.spec.base import (
    Fraction,
    Model,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seconds,
    Switch,
    no_repeats,
)

MOST_SEEDS = 1000


def _seeds(value: Any) -> Any:
    """A number of seeds stands for 0, 1, 2, ..."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        if value > MOST_SEEDS:
            raise ValueError(f"at most {MOST_SEEDS:,} seeds")
        return tuple(range(value))
    return value


class TrainingSpec(Model):
    """How a model is trained to an accuracy, on one device and on several."""

    epochs: PositiveInt = Field(3, description="passes over the training samples")
    learning_rate_scaling: Literal["none", "linear", "world_size"] = Field(
        "none",
        description="how the learning rate grows: with the ratio of global batch to reference batch, or the "
        "number of devices whatever the batch",
    )
    reference_batch: PositiveInt | None = Field(
        None,
        description="samples of an optimizer step to which optimizer.learning_rate belongs; "
        "unset: those of one device",
    )
    warmup_epochs: Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)] = Field(
        0.0,
        description="epochs in which the learning rate rises evenly from 0 to the scaled one, at which it "
        "stays; 0 leaves it to the workload's scheduler, if it has one",
    )
    seeds: Annotated[
        tuple[NonNegativeInt, ...], Field(min_length=1), BeforeValidator(_seeds), AfterValidator(no_repeats)
    ] = Field((0,), description="of weights and order of samples, a trial each; a number n: 0 to n - 1")
    settings: Literal["default", "measured"] = Field(
        "default",
        description="what is trained: the default (of an ablation all changes together too); measured: at "
        "the target world size every measured setting too, of those that learn equally the fastest",
    )
    target_accuracy: Fraction | None = Field(
        None, description="of the test samples, 0 to 1, for which time and samples are reported; unset: none"
    )
    tolerance_points: PositiveFloat = Field(
        0.4, description="percentage points of accuracy within which two results are the same"
    )
    checkpoint: Switch = Field(True, description="write a checkpoint after each epoch, and go on from it")
    save_model: Switch = Field(
        False, description="keep each trained model: models/ in the results, as safetensors"
    )
    timeout_seconds: Seconds = Field(7200.0, description="a training trial is ended after this time, in s")

    def learning_rate_factor(self, global_batch: int, reference_batch: int, world_size: int) -> float:
        """What the optimizer's learning rate is multiplied with at ``global_batch`` samples a step.

        Linear: Goyal et al. (2017), "Accurate, large minibatch SGD", section 2.1. World size: also where the
        devices share one global batch.
        """
        factors = {"none": 1.0, "linear": global_batch / reference_batch, "world_size": world_size}
        return factors[self.learning_rate_scaling]

    def warmup_factor(self, step: int, steps_per_epoch: int) -> float:
        """Share of the scaled learning rate that optimizer step ``step`` (from 0) takes."""
        warmup = round(self.warmup_epochs * steps_per_epoch)
        return (step + 1) / warmup if step < warmup else 1.0
