"""What other numbers of devices would bring: a group's measured steps, and the answers to what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.collectives.link import Link, LinkKey
from raybench.analysis.estimates.statistics import Estimate, unpaired_ratio
from raybench.analysis.prediction.amdahl import AmdahlFit
from raybench.analysis.prediction.measured_groups import (
    MeasuredGroup,
    Measurement,
    ScalingMode,
    micro_batch,
    samples_of_step,
)
from raybench.analysis.prediction.points import Prediction, Question, Shape
from raybench.analysis.prediction.predict import Fitted, fit
from raybench.errors import RequestError

FURTHEST = 8  # times the largest measured world size, that is asked for where nothing is said
FEWEST_WORLD_SIZES = 3  # from which on a study's report predicts


@dataclass(frozen=True)
class Expected:
    """A step of one batch on one shape, measured or predicted.

    ``batch_size`` as it is asked for: per device under weak scaling, of all devices under strong. Efficiency
    is over one device: of the throughput for each device (weak), of the step time (strong). Where
    ``refused`` holds a reason there is no step time.
    """

    batch_size: int
    shape: Shape
    samples: float  # of all devices in one step
    step_time_s: Estimate | None
    efficiency: Estimate | None
    naive_step_time_s: float | None = None
    amdahl_step_time_s: float | None = None
    is_measured: bool = False
    joules_per_sample: float | None = None
    refused: str = ""

    @property
    def throughput_samples_per_s(self) -> Estimate | None:
        """Of all devices."""
        step_s = self.step_time_s
        if step_s is None:
            return None
        value, low, high = (self.samples / each for each in (step_s.value, step_s.high, step_s.low))
        return Estimate(value, low, high, step_s.n, step_s.starts)


@dataclass(frozen=True)
class Forecast:
    """What was measured of a model, and what is predicted of it."""

    group: MeasuredGroup
    scaling: ScalingMode  # of the predictions
    measured: tuple[Expected, ...]  # of ``scaling``: by batch, the smallest world size first
    predicted: tuple[Expected, ...]
    fitted: Fitted

    @property
    def amdahl(self) -> AmdahlFit | None:
        """Amdahl's law through the same points."""
        return self.fitted.amdahl

    @property
    def answered(self) -> tuple[Expected, ...]:
        """The predictions that were not refused."""
        return tuple(each for each in self.predicted if each.step_time_s is not None)

    @property
    def everything(self) -> tuple[Expected, ...]:
        """Measured steps, and predicted ones where nothing was measured."""
        known = {(each.batch_size, each.shape) for each in self.measured}
        new = (each for each in self.answered if (each.batch_size, each.shape) not in known)
        return (*self.measured, *new)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """As they were asked for, ascending."""
        return tuple(sorted({each.batch_size for each in self.predicted}))


def forecast(
    group: MeasuredGroup,
    shapes: Sequence[Shape],
    scaling: ScalingMode | None = None,
    link: Mapping[LinkKey, Link] | None = None,
) -> Forecast:
    """The answers for each batch that was measured, on each of ``shapes``.

    ``scaling``: of what is predicted, else that of the measurements. Where the two differ, batches measured
    per device become global ones of the same size, and global ones those that a device had. ``link``: what a
    sweep of collectives says of the network.
    """
    fitted = fit(group.points, link, group.scaling)
    asked = scaling or group.scaling
    batches = group.batch_sizes
    if asked == "weak" and group.scaling == "strong":
        batches = tuple(sorted({point.batch_size for point in group.points}))
    predicted = [
        each
        for batch in batches
        for each in _answers(group, fitted, asked, batch, sorted(shapes, key=_order))
    ]
    # a batch of one scaling is not the same batch in the other, so its steps do not stand beside the answers
    measured = _measured(group, fitted) if asked == group.scaling else ()
    return Forecast(group, asked, measured, tuple(predicted), fitted)


def doublings(group: MeasuredGroup) -> tuple[int, ...]:
    """The next world sizes, up to eight times the largest that was measured."""
    largest, factor, sizes = max(group.world_sizes), 2, list[int]()
    while factor <= FURTHEST:
        sizes.append(largest * factor)
        factor *= 2
    return tuple(sizes)


def shapes_of(
    world_sizes: Sequence[int], devices_per_node: int, nodes: Sequence[int] | None = None
) -> tuple[Shape, ...]:
    """How workers stand on nodes: full nodes and a last one, or evenly on so many nodes.

    Raises:
        RequestError: not as many numbers of nodes as world sizes, or more nodes than devices.
    """
    if nodes is None:
        return tuple(_packed(size, devices_per_node) for size in world_sizes)
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


def _packed(world_size: int, per_node: int) -> Shape:
    full, rest = divmod(world_size, per_node)
    return Shape((per_node,) * full + ((rest,) if rest else ()))


def _order(shape: Shape) -> tuple[int, int]:
    return shape.world_size, shape.nodes


def _answers(
    group: MeasuredGroup, fitted: Fitted, scaling: ScalingMode, batch: int, shapes: Sequence[Shape]
) -> list[Expected]:
    """One batch on every shape."""
    possible = [shape for shape in shapes if _has_a_sample_each(batch, shape, scaling, group.passes)]
    of_all = batch if scaling == "strong" else None
    questions = [
        Question(shape, micro_batch(batch, shape.world_size, scaling, group.passes), of_all, group.passes)
        for shape in possible
    ]
    said = dict(zip(possible, fitted.predict(questions), strict=True))
    return [_answer(group, fitted, scaling, batch, shape, said.get(shape)) for shape in shapes]


def _has_a_sample_each(batch: int, shape: Shape, scaling: ScalingMode, passes: int) -> bool:
    return scaling == "weak" or batch >= shape.world_size * passes


def _answer(
    group: MeasuredGroup,
    fitted: Fitted,
    scaling: ScalingMode,
    batch: int,
    shape: Shape,
    said: Prediction | None,
) -> Expected:
    samples = samples_of_step(batch, shape.world_size, scaling, group.passes)
    if said is None:
        refused = f"a global batch of {batch:,} has no sample for each of {shape.world_size:,} devices"
        return Expected(batch, shape, samples, None, None, refused=refused)
    found = Expected(
        batch_size=batch,
        shape=shape,
        samples=samples,
        step_time_s=said.step_time_s,
        efficiency=said.efficiency,
        naive_step_time_s=said.naive_step_time_s,
        amdahl_step_time_s=said.amdahl_step_time_s,
        refused=said.refused,
    )
    if scaling == "weak":
        return found
    efficiency = None
    if said.step_time_s is not None:
        alone_s = _one_device_s(group, fitted, scaling, batch)
        efficiency = _over_one(alone_s, said.step_time_s, shape.world_size)
    return replace(found, efficiency=efficiency, naive_step_time_s=_naive_s(group, batch))


def _naive_s(group: MeasuredGroup, batch: int) -> float | None:
    """Under strong scaling: the step stays as at the largest measured world size of the same global batch."""
    same = [each for each in group.distinct if each.batch_size == batch and group.scaling == "strong"]
    if not same:
        return None
    return max(same, key=lambda each: each.point.shape.world_size).step_time_s.value


def _one_device_s(group: MeasuredGroup, fitted: Fitted, scaling: ScalingMode, batch: int) -> Estimate:
    """A step of the whole batch on one device: as measured, else as the model has it."""
    micro = micro_batch(batch, 1, scaling, group.passes)
    alone = (
        each.step_time_s
        for each in group.distinct
        if each.point.shape.world_size == 1 and each.point.batch_size == micro
    )
    measured = next(alone, None)
    return measured if measured is not None else fitted.compute_s(micro)


def _over_one(alone_s: Estimate, step_s: Estimate, world_size: int) -> Estimate:
    """Efficiency under strong scaling: the step time of one device over n of theirs."""
    return unpaired_ratio(alone_s, step_s).scaled(1 / world_size)


def _measured(group: MeasuredGroup, fitted: Fitted) -> tuple[Expected, ...]:
    return tuple(_expected(group, fitted, each) for each in group.distinct)


def _expected(group: MeasuredGroup, fitted: Fitted, each: Measurement) -> Expected:
    size, efficiency = each.point.shape.world_size, each.efficiency
    if efficiency is None:
        alone_s = _one_device_s(group, fitted, group.scaling, each.batch_size)
        efficiency = unpaired_ratio(alone_s, each.step_time_s)
        efficiency = efficiency.scaled(1 / size) if group.scaling == "strong" else efficiency
    return Expected(
        batch_size=each.batch_size,
        shape=each.point.shape,
        samples=samples_of_step(each.batch_size, size, group.scaling, group.passes),
        step_time_s=each.step_time_s,
        efficiency=efficiency,
        is_measured=True,
        joules_per_sample=each.joules_per_sample,
    )
