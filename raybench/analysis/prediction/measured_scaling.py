"""Speed-up, efficiency and status of measured steps of which the times alone are known."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.estimates.efficiency import Status, status
from raybench.analysis.estimates.statistics import Estimate, unpaired_ratio
from raybench.analysis.prediction.measured_groups import MeasuredGroup, Measurement, samples_of_step
from raybench.analysis.prediction.points import Shape


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
