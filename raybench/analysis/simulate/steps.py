"""Measured steps, questions and answers of a prediction, and the speed-up of steps known by their times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from raybench.analysis.reference import grouped
from raybench.analysis.stats.statistics import NORMAL_95, Estimate, geometric_of, inverse, unpaired_ratio


@dataclass(frozen=True, order=True)
class Shape:
    """How many workers stand on each node, nodes without any left out: ``(4, 4)`` is two nodes of four."""

    workers: tuple[int, ...]

    @property
    def world_size(self) -> int:
        """Workers on all nodes."""
        return sum(self.workers)

    @property
    def nodes(self) -> int:
        """Nodes with a worker."""
        return len(self.workers)

    @staticmethod
    def even(world_size: int, nodes: int) -> Shape:
        """As evenly as possible, the fuller nodes first."""
        each, more = divmod(world_size, nodes)
        return Shape(tuple(each + (index < more) for index in range(nodes)))

    @staticmethod
    def packed(world_size: int, per_node: int) -> Shape:
        """Full nodes, and a last one."""
        full, rest = divmod(world_size, per_node)
        return Shape((per_node,) * full + ((rest,) if rest else ()))


ScalingMode = Literal["weak", "strong"]


@dataclass(frozen=True)
class Question:
    """A step of this batch per device on this shape.

    ``global_batch_size``: under strong scaling what all devices divide, each in ``passes`` of ``batch_size``.
    """

    shape: Shape
    batch_size: int
    global_batch_size: int | None = None
    passes: int = 1
    counted: float = 1.0  # samples that the workload counts for each of a batch

    @classmethod
    def of(
        cls, shape: Shape, batch_size: int, scaling: ScalingMode, passes: int, counted: float = 1.0
    ) -> Question:
        """``batch_size`` as it is asked for: per device under weak scaling, of all devices under strong.

        Where a global batch cannot be divided evenly a device's is the largest share.
        """
        if scaling == "weak":
            return cls(shape, batch_size, None, passes, counted)
        of_device = math.ceil(batch_size / (shape.world_size * passes))
        return cls(shape, of_device, batch_size, passes, counted)

    @property
    def samples(self) -> float:
        """Of all devices in one step, as the workload counts them."""
        each = self.batch_size * self.passes * self.shape.world_size
        return self.counted * (self.global_batch_size or each)


@dataclass(frozen=True)
class Step:
    """A question, and what is known of its step; None where that is nothing.

    ``efficiency`` is over ``baseline_world_size`` devices: of the throughput for each device (weak), of the
    step time (strong).
    """

    question: Question
    step_time_s: Estimate | None = None
    efficiency: Estimate | None = None
    mean_step_s: Estimate | None = None  # over all rounds; None: as ``step_time_s``
    baseline_world_size: int = 1

    @property
    def shape(self) -> Shape:
        """Where it runs."""
        return self.question.shape

    @property
    def batch_size(self) -> int:
        """As it is asked for."""
        return self.question.global_batch_size or self.question.batch_size

    @property
    def total_step_s(self) -> Estimate | None:
        """The mean step, of which totals are made."""
        return self.mean_step_s or self.step_time_s

    @property
    def speedup(self) -> Estimate | None:
        """Over the devices that its efficiency is over."""
        return self.efficiency and self.efficiency.scaled(self.shape.world_size / self.baseline_world_size)


# why a question has no answer
Refusal = Literal[
    "too few world sizes",
    "too many devices",
    "network not crossed",
    "no sample for each device",
    "samples do not scale",
]
How = Literal["as if", "simulated", "fit", "law"]
# the steps here, the network's, the wait for the slowest, and how a step is simulated
Input = Literal["rounds", "held", "latency", "bandwidth", "stragglers", "model"]


@dataclass(frozen=True)
class Expected(Step):
    """A step that was not measured so; or why there is no prediction.

    Intervals are those of a new measurement. ``naive_step_time_s`` says that the step stays as at the largest
    measured world size. Where ``refused`` holds a reason the predicted values are None.
    """

    how: How = "fit"
    naive_step_time_s: float | None = None
    refused: Refusal | None = None
    network: str | None = None  # that joins the devices; None: as they are joined here
    shares: tuple[tuple[Input, float], ...] = ()  # of the variance behind the interval, by what has it
    is_bound: bool = False  # its all-reduces take longer here than on the network: no less than it may be


@dataclass(frozen=True, kw_only=True)
class Measurement(Step):
    """One measured step. The interval of ``step_time_s`` has no width where nobody said (n is 1 then).

    ``efficiency`` where it was measured in the same rounds, or compared with another measurement.
    """

    step_time_s: Estimate
    compute_s: float | None = None  # of the bare step on all devices at once: measured, or less communication
    is_reference: bool = False  # of its batch and shape: the figure that reports have

    @property
    def log_error(self) -> float:
        """The standard error of the step's logarithm; 0 where nobody said."""
        half = self.step_time_s.log_half_width
        return half / NORMAL_95 if math.isfinite(half) else 0.0

    @property
    def throughput_samples_per_s(self) -> Estimate:
        """Samples of all devices in a step over its time."""
        return inverse(self.step_time_s).scaled(self.question.samples)


@dataclass(frozen=True)
class MeasuredGroup:
    """All that is fitted together, and what was left out of it."""

    model: str
    setting: str  # in words; empty where it is the only one
    scaling: ScalingMode
    passes: int  # micro-batches of a step: gradient accumulation
    measurements: tuple[Measurement, ...]
    counted: float = 1.0  # as of a ``Question``
    notes: tuple[str, ...] = ()
    refused: Refusal | None = None  # why nothing is predicted of it, whatever is asked

    def question(self, shape: Shape, batch_size: int, scaling: ScalingMode) -> Question:
        """A batch, as it is asked for, on ``shape``."""
        return Question.of(shape, batch_size, scaling, self.passes, self.counted)

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """Those measured, ascending."""
        return tuple(sorted({each.shape.world_size for each in self.measurements}))

    @property
    def devices_per_node(self) -> int:
        """The most that were measured on one node."""
        return max(max(each.shape.workers) for each in self.measurements)

    @cached_property
    def distinct(self) -> tuple[Measurement, ...]:
        """One measurement for each batch and shape, the smallest first.

        Of repeats the reference, else their geometric mean.
        """
        repeats = grouped(self.measurements, lambda one: (one.batch_size, one.shape.world_size, one.shape))
        return tuple(_mean(repeats[key]) for key in sorted(repeats))

    @cached_property
    def scalings(self) -> tuple[Measurement, ...]:
        """How each of these scales, over the smallest world size of the same batch.

        Weak scaling: speed-up = throughput over that of the baseline; strong: step time of the baseline over
        the step time. Efficiency = speed-up over the ratio of world sizes; None where no smaller world size
        was measured with the batch. One device that was measured in the same rounds comes before every other
        baseline. Else the ratio is of times that were not measured in the same rounds: where their intervals
        are not known, neither is that of the ratio.
        """
        return tuple(_scaled(each, self.distinct) for each in self.distinct)


def _mean(repeats: Sequence[Measurement]) -> Measurement:
    first = next((each for each in repeats if each.is_reference), repeats[0])
    if len(repeats) == 1 or first.is_reference:
        return first
    means_s = [each.mean_step_s or each.step_time_s for each in repeats]
    return Measurement(
        question=first.question,
        step_time_s=_over_repeats([each.step_time_s for each in repeats]),
        mean_step_s=_over_repeats(means_s) if any(each.mean_step_s for each in repeats) else None,
    )


def _over_repeats(times_s: Sequence[Estimate]) -> Estimate:
    """The geometric mean; ``n`` counts the rounds of all repeats."""
    return replace(geometric_of(times_s), n=sum(each.n for each in times_s))


def _scaled(each: Measurement, distinct: Sequence[Measurement]) -> Measurement:
    """With its efficiency over the smallest world size of the same batch, where it is not known already."""
    same = [other for other in distinct if other.batch_size == each.batch_size]
    if each.efficiency is not None or len({other.shape.world_size for other in same}) < 2:
        return each
    base = min(same, key=lambda other: (other.shape.world_size, other.shape.nodes))
    ratio = Estimate(1.0, 1.0, 1.0, each.step_time_s.n)
    if base is not each:
        ratio = unpaired_ratio(each.throughput_samples_per_s, base.throughput_samples_per_s)
    base_size = base.shape.world_size
    return replace(
        each, efficiency=ratio.scaled(base_size / each.shape.world_size), baseline_world_size=base_size
    )
