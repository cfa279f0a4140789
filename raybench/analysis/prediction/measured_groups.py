"""What is fitted together: the steps of one model under one setting, over world sizes and batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from raybench.analysis.estimates.over_starts import over_starts
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.prediction.points import MeasuredPoint, Shape

ScalingMode = Literal["weak", "strong"]
NORMAL_95 = 1.96  # standard errors in half of a 95% interval of many rounds


@dataclass(frozen=True)
class Measurement:
    """One measured step.

    ``batch_size`` as it was asked for: per device under weak scaling, of all devices under strong. The
    interval of ``step_time_s`` has no width where nobody said (n is 1 then).
    """

    point: MeasuredPoint
    batch_size: int
    step_time_s: Estimate
    efficiency: Estimate | None = None  # over one device, where it was measured in the same rounds
    joules_per_sample: float | None = None
    speaks: bool = False  # for all of its batch and shape: the figure that reports have


@dataclass(frozen=True)
class MeasuredGroup:
    """All that is fitted together, and what was left out of it."""

    model: str
    setting: str  # in words; empty where there is nothing to tell it from
    scaling: ScalingMode
    passes: int  # micro-batches of a step: gradient accumulation
    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> tuple[MeasuredPoint, ...]:
        """What a model is fitted to."""
        return tuple(each.point for each in self.measurements)

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """Those measured, ascending."""
        return tuple(sorted({each.shape.world_size for each in self.points}))

    @property
    def devices_per_node(self) -> int:
        """The most that were measured on one node."""
        return max(max(each.shape.workers) for each in self.points)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Those measured, as they were asked for, ascending."""
        return tuple(sorted({each.batch_size for each in self.measurements}))

    @property
    def distinct(self) -> tuple[Measurement, ...]:
        """One measurement for each batch and shape, the smallest first.

        Of repeats the one that speaks for the others, else their geometric mean.
        """
        alike: dict[tuple[int, int, Shape], list[Measurement]] = {}
        for each in self.measurements:
            alike.setdefault((each.batch_size, each.point.shape.world_size, each.point.shape), []).append(
                each
            )
        return tuple(_mean(alike[key]) for key in sorted(alike))


def without_interval(value: float) -> Estimate:
    """A number of which nobody said how sure it is."""
    return Estimate(value, value, value, 1)


def log_error(step_time_s: Estimate) -> float | None:
    """The standard error of the step time's logarithm; None where there is no interval."""
    half = step_time_s.log_half_width
    return half / NORMAL_95 if half > 0 and math.isfinite(half) else None


def micro_batch(batch_size: int, world_size: int, scaling: ScalingMode, passes: int) -> int:
    """Samples of one pass on one device; where a global batch cannot be divided evenly the largest share."""
    return batch_size if scaling == "weak" else math.ceil(batch_size / (world_size * passes))


def samples_of_step(batch_size: int, world_size: int, scaling: ScalingMode, passes: int) -> float:
    """Samples of all devices in one step."""
    return batch_size * passes * world_size if scaling == "weak" else batch_size


def _mean(repeats: Sequence[Measurement]) -> Measurement:
    first = next((each for each in repeats if each.speaks), repeats[0])
    if len(repeats) == 1 or first.speaks:
        return first
    return Measurement(first.point, first.batch_size, over_starts([each.step_time_s for each in repeats]))
