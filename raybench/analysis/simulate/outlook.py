"""What other numbers of devices would bring, and cost: predictions, laws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from raybench.analysis.collectives import Link
from raybench.analysis.cost import Cost, Work, cost_of
from raybench.analysis.laws import DOUBLINGS, ByLaw, MarginalReturn, by_law, marginal_returns
from raybench.analysis.simulate.fit import Fitted, fit
from raybench.analysis.simulate.steps import (
    Expected,
    MeasuredGroup,
    Question,
    ScalingMode,
    Shape,
    Step,
)
from raybench.analysis.stats.statistics import Estimate, typical_over_mean, unpaired_ratio
from raybench.errors import RequestError


def doublings(group: MeasuredGroup) -> tuple[int, ...]:
    """The next world sizes, up to eight times the largest that was measured."""
    return tuple(max(group.world_sizes) * factor for factor in DOUBLINGS)


def shapes_of(
    world_sizes: Sequence[int], devices_per_node: int, nodes: Sequence[int] | None = None
) -> tuple[Shape, ...]:
    """How workers stand on nodes: full nodes and a last one, or evenly on so many nodes.

    Raises:
        RequestError: not as many numbers of nodes as world sizes, or more nodes than devices.
    """
    if nodes is None:
        return tuple(Shape.packed(size, devices_per_node) for size in world_sizes)
    if len(nodes) != len(world_sizes):
        raise RequestError(
            f"--nodes: one number for each of --world-sizes, {len(world_sizes)} (received {len(nodes)})"
        )
    for size, number in zip(world_sizes, nodes, strict=True):
        if number > size:
            raise RequestError(
                f"--nodes: at most a node for each device (received {number} for {size} devices)"
            )
    return tuple(Shape.even(size, number) for size, number in zip(world_sizes, nodes, strict=True))


def _answer(group: MeasuredGroup, fitted: Fitted, asked: Question) -> Expected:
    """What is expected of a step of the group, or why nothing is."""
    world_size, is_strong = asked.shape.world_size, asked.global_batch_size is not None
    if group.refused:
        return Expected(asked, refused=group.refused)
    if is_strong and asked.samples < world_size * group.passes:
        return Expected(asked, refused="no sample for each device")
    (said,) = fitted.predict([asked])
    step_s, efficiency = said.step_time_s, said.efficiency
    if step_s is None:
        return said
    if is_strong:
        alone_s = _one_device_s(group, fitted, said.batch_size)
        efficiency = unpaired_ratio(alone_s, step_s).scaled(1 / world_size)
    over_mean = _typical_over_mean(group, said.batch_size)
    mean_s = unpaired_ratio(step_s, over_mean) if over_mean else step_s
    return replace(said, efficiency=efficiency, mean_step_s=mean_s)


def _typical_over_mean(group: MeasuredGroup, batch: int) -> Estimate | None:
    """The typical step over the mean one on the most devices, of the same batch if it was measured.

    Slow steps are at least as frequent on more devices, any of which may be the slow one.
    """
    known = [each for each in group.distinct if each.mean_step_s is not None]
    same = [each for each in known if each.batch_size == batch] or known
    largest = max(same, key=lambda each: each.shape.world_size, default=None)
    if largest is None or largest.mean_step_s is None:
        return None
    return typical_over_mean(largest.step_time_s, largest.mean_step_s)


def _one_device_s(group: MeasuredGroup, fitted: Fitted, batch: int) -> Estimate:
    """A step of the whole global batch on one device: as measured, else as the model has it."""
    alone = group.question(Shape((1,)), batch, "strong")
    for each in group.distinct:
        of_step = each.question.batch_size * each.question.passes
        if (each.shape, of_step) == (alone.shape, alone.batch_size * alone.passes):
            return each.step_time_s
    return fitted.compute_s(alone.batch_size)


@dataclass(frozen=True)
class Outlook:
    """What was measured of a model, what is predicted of it, and what a run costs."""

    group: MeasuredGroup
    scaling: ScalingMode  # of the predictions
    predicted: tuple[Expected, ...]
    price: float | None  # of a second of one device
    run: Work

    @property
    def answered(self) -> tuple[Expected, ...]:
        """The predictions that were not refused."""
        return tuple(each for each in self.predicted if each.step_time_s is not None)

    @property
    def returns(self) -> tuple[tuple[int, tuple[MarginalReturn, ...]], ...]:
        """By batch what further devices brought, under weak scaling; each world size on the fewest nodes."""
        speedups: dict[int, dict[int, Estimate | None]] = {}
        for each in sorted(self.group.scalings, key=lambda each: (each.batch_size, each.shape.nodes)):
            if self.group.scaling == "weak":
                speedups.setdefault(each.batch_size, {}).setdefault(each.shape.world_size, each.speedup)
        found = (
            (batch, marginal_returns((size, each) for size, each in of_batch.items() if each))
            for batch, of_batch in speedups.items()
        )
        return tuple(each for each in found if each[1])

    @cached_property
    def laws(self) -> Mapping[int, ByLaw]:
        """By batch, what a law makes of its speed-up on the most devices."""
        is_strong = self.group.scaling == "strong"
        if self.group.refused or self.scaling != self.group.scaling:
            return {}
        asked = sorted({each.shape.world_size for each in self.predicted})
        found = dict[int, ByLaw | None]()
        for each in sorted(self.group.scalings, key=lambda each: (each.batch_size, each.shape.world_size)):
            size, batch = each.shape.world_size, each.batch_size
            if each.speedup is not None and each.baseline_world_size == 1 and size > 1:
                most = each.question.samples / self.group.passes if is_strong else math.inf
                found[batch] = by_law(each.speedup, size, is_strong=is_strong, asked=asked, most=most)
        return {batch: law for batch, law in found.items() if law is not None}


def outlook(
    group: MeasuredGroup,
    shapes: Sequence[Shape],
    run: Work,
    price: float | None,
    scaling: ScalingMode | None = None,
    links: Sequence[Link] = (),
) -> Outlook:
    """The answers for each batch that was measured, on each of ``shapes``, and what ``run`` costs there.

    ``scaling``: of what is predicted, else that of the measurements. Where the two differ, batches measured
    per device become global ones of the same size, and global ones those that a device had. ``links``: what a
    sweep of collectives says of the network.
    """
    fitted = fit(group.measurements, links)
    asked = scaling or group.scaling
    batches = sorted(
        {each.question.batch_size if asked == "weak" else each.batch_size for each in group.measurements}
    )
    ordered = sorted(shapes, key=lambda shape: (shape.world_size, shape.nodes))
    questions = (group.question(shape, batch, asked) for batch in batches for shape in ordered)
    predicted = tuple(_answer(group, fitted, each) for each in questions)
    return Outlook(group, asked, predicted, price, run)


def cost_of_run(run: Work, step: Step, price: float | None) -> Cost | None:
    """What ``run`` costs by this step; None where that is not known."""
    if step.total_step_s is None:
        return None
    time_s = step.total_step_s.scaled(run.samples / step.question.samples)
    return cost_of(time_s, step.shape.world_size, price)
