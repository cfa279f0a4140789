"""Measured steps, questions and answers of a prediction, and the speed-up of steps known by their times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from raybench.analysis.scaling import Status, status
from raybench.analysis.stats.statistics import Estimate, of_log, stdev, t_quantile, unpaired_ratio


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


@dataclass(frozen=True)
class MeasuredPoint:
    """One measured step: the mean over steps of the slowest rank.

    ``compute_s`` is that of the bare step on all devices at once, where that was measured (``concurrent``, or
    the step less its communication); ``log_error`` is the standard error of the logarithm of
    ``step_time_s``, None where it is not known. ``global_batch_size``: that of strong scaling as it was asked
    for, which devices may divide unevenly.
    """

    shape: Shape
    batch_size: int  # per device
    step_time_s: float
    compute_s: float | None = None
    log_error: float | None = None
    global_batch_size: int | None = None


@dataclass(frozen=True)
class Question:
    """What is to be predicted: a step of this batch per device on this shape.

    ``global_batch_size``: under strong scaling what all devices divide, each in ``passes`` of ``batch_size``.
    """

    shape: Shape
    batch_size: int
    global_batch_size: int | None = None
    passes: int = 1


# why a question has no answer
Refusal = Literal[
    "too few world sizes", "too many devices", "network not crossed", "no sample for each device"
]


@dataclass(frozen=True)
class Prediction:
    """The answer to one question, or why there is none.

    ``step_time_s`` and ``efficiency`` have 95% intervals for a new measurement; efficiency is the
    throughput for each device over that of one device with the same batch. ``naive_step_time_s`` says that
    the step stays as at the largest measured world size; ``amdahl_step_time_s`` follows Amdahl's law, under
    strong scaling. Where
    ``refused`` holds a reason the predicted values are None.
    """

    question: Question
    step_time_s: Estimate | None
    efficiency: Estimate | None
    naive_step_time_s: float | None
    amdahl_step_time_s: float | None
    refused: Refusal | None = None


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
    is_reference: bool = False  # of its batch and shape: the figure that reports have
    mean_step_s: Estimate | None = None  # over all rounds, of which totals are made; None: as ``step_time_s``


@dataclass(frozen=True)
class MeasuredGroup:
    """All that is fitted together, and what was left out of it."""

    model: str
    setting: str  # in words; empty where it is the only one
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

        Of repeats the reference, else their geometric mean.
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
    first = next((each for each in repeats if each.is_reference), repeats[0])
    if len(repeats) == 1 or first.is_reference:
        return first
    means_s = [each.mean_step_s or each.step_time_s for each in repeats]
    return Measurement(
        first.point,
        first.batch_size,
        _over_repeats([each.step_time_s for each in repeats]),
        mean_step_s=_over_repeats(means_s) if any(each.mean_step_s for each in repeats) else None,
    )


def _over_repeats(times_s: Sequence[Estimate]) -> Estimate:
    """The geometric mean, with Student's interval over the repeats, or their own where that is wider."""
    logs = [math.log(each.value) for each in times_s]
    between = t_quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    half = max(between, math.hypot(*(each.log_half_width for each in times_s)) / len(times_s))
    return of_log(sum(logs) / len(logs), half, sum(each.n for each in times_s), len(times_s))


@dataclass(frozen=True)
class MeasuredScaling:
    """How one batch scales on one shape; None where no smaller world size was measured with it.

    The baseline itself, and other shapes of as many devices, have no status: nothing was scaled.

    Ratios of times that were not measured in the same rounds: where their intervals are not known, neither is
    that of the ratio.
    """

    batch_size: int  # as it was asked for
    shape: Shape
    step_time_s: Estimate
    throughput_samples_per_s: Estimate
    baseline_world_size: int | None
    speedup: Estimate | None
    efficiency: Estimate | None
    status: Status | None


def measured_scalings(group: MeasuredGroup) -> tuple[MeasuredScaling, ...]:
    """Every batch and shape, over the smallest world size of the same batch, the smallest batch first.

    Weak scaling: speed-up = throughput over that of the baseline; strong: step time of the baseline over the
    step time. Efficiency = speed-up over the ratio of world sizes. One device that was measured in the same
    rounds comes before every other baseline.
    """
    distinct = group.distinct
    return tuple(_scaling(group, each, _baseline(each, distinct)) for each in distinct)


def _baseline(each: Measurement, distinct: tuple[Measurement, ...]) -> Measurement | None:
    """None where the batch was measured at one world size only."""
    same = [other for other in distinct if other.batch_size == each.batch_size]
    if len({other.point.shape.world_size for other in same}) < 2:
        return None
    return min(same, key=lambda other: (other.point.shape.world_size, other.point.shape.nodes))


def _scaling(group: MeasuredGroup, each: Measurement, base: Measurement | None) -> MeasuredScaling:
    size, rate = each.point.shape.world_size, _throughput(group, each)
    speedup = efficiency = None
    if base is not None:
        of_base = base.point.shape.world_size
        exactly = Estimate(1.0, 1.0, 1.0, each.step_time_s.n)
        speedup = exactly if each is base else unpaired_ratio(rate, _throughput(group, base))
        efficiency = speedup.scaled(of_base / size)
    base_size = base.point.shape.world_size if base else None
    if each.efficiency is not None:
        base_size, efficiency, speedup = 1, each.efficiency, each.efficiency.scaled(size)
    return MeasuredScaling(
        batch_size=each.batch_size,
        shape=each.point.shape,
        step_time_s=each.step_time_s,
        throughput_samples_per_s=rate,
        baseline_world_size=base_size,
        speedup=speedup,
        efficiency=efficiency,
        status=None if size == base_size else status(speedup, efficiency),
    )


def _throughput(group: MeasuredGroup, each: Measurement) -> Estimate:
    """Samples of all devices in a step over its time."""
    size, step_s = each.point.shape.world_size, each.step_time_s
    samples = samples_of_step(each.batch_size, size, group.scaling, group.passes)
    return Estimate(
        samples / step_s.value, samples / step_s.high, samples / step_s.low, step_s.n, step_s.starts
    )
