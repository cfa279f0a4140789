"""What other numbers of devices would bring, and cost: forecast, front of time and cost, limits, worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from raybench.analysis.collectives import Link, LinkKey
from raybench.analysis.cost import Cost, Work, cost_of
from raybench.analysis.laws import DOUBLINGS, ByLaw, MarginalReturn, by_law, marginal_returns
from raybench.analysis.objectives import Prices, on_front
from raybench.analysis.simulate.predict import AmdahlFit, Fitted, fit
from raybench.analysis.simulate.steps import (
    NORMAL_95,
    MeasuredGroup,
    MeasuredScaling,
    Measurement,
    Prediction,
    Question,
    Refusal,
    ScalingMode,
    Shape,
    measured_scalings,
    micro_batch,
    samples_of_step,
)
from raybench.analysis.stats.statistics import Estimate, unpaired_ratio
from raybench.errors import RequestError

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
    refused: Refusal | None = None
    mean_ratio: float = 1.0  # of the mean step over all rounds, of which totals are made, to the step time
    mean_step_s: Estimate | None = None  # as measured

    @property
    def total_step_s(self) -> Estimate | None:
        """The mean step, of which totals are made."""
        if self.mean_step_s is not None or self.step_time_s is None:
            return self.mean_step_s
        return self.step_time_s.scaled(self.mean_ratio)

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
    # a batch of one scaling is not the same batch in the other, so its steps do not stand with the answers
    shown = group.distinct if asked == group.scaling else ()
    measured = tuple(_expected(group, fitted, each) for each in shown)
    return Forecast(group, asked, measured, tuple(predicted), fitted)


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
    is_weak = scaling == "weak"
    # a global batch has to have a sample for each device
    possible = [shape for shape in shapes if is_weak or batch >= shape.world_size * group.passes]
    of_all = None if is_weak else batch
    questions = [
        Question(shape, micro_batch(batch, shape.world_size, scaling, group.passes), of_all, group.passes)
        for shape in possible
    ]
    said = dict(zip(possible, fitted.predict(questions), strict=True))
    return [_answer(group, fitted, scaling, batch, shape, said.get(shape)) for shape in shapes]


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
        return Expected(batch, shape, samples, None, None, refused="no sample for each device")
    efficiency, naive_s = said.efficiency, said.naive_step_time_s
    if scaling == "strong":
        efficiency, naive_s = None, _naive_s(group, batch)
        if said.step_time_s is not None:
            alone_s = _one_device_s(group, fitted, scaling, batch)
            efficiency = unpaired_ratio(alone_s, said.step_time_s).scaled(1 / shape.world_size)
    return Expected(
        batch_size=batch,
        shape=shape,
        samples=samples,
        step_time_s=said.step_time_s,
        efficiency=efficiency,
        naive_step_time_s=naive_s,
        amdahl_step_time_s=said.amdahl_step_time_s,
        refused=said.refused,
        mean_ratio=_mean_ratio(group, batch),
    )


def _mean_ratio(group: MeasuredGroup, batch: int) -> float:
    """The mean step over the typical one on the most devices, of the same batch if it was measured.

    Slow steps are at least as frequent on more devices, any of which may be the slow one.
    """
    known = [each for each in group.distinct if each.mean_step_s is not None]
    alike = [each for each in known if each.batch_size == batch] or known
    largest = max(alike, key=lambda each: each.point.shape.world_size, default=None)
    if largest is None or largest.mean_step_s is None:
        return 1.0
    return largest.mean_step_s.value / largest.step_time_s.value


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
        mean_step_s=each.mean_step_s,
    )


LEAST_RETURN = 0.5  # of one device's throughput, that a further device is to bring
SURE = 0.95


@dataclass(frozen=True)
class Way:
    """One way to train: a batch on a shape, with what each piece of work takes."""

    expected: Expected
    costs: tuple[Cost, ...]
    on_front: bool = False  # of time and cost: no other way dominates it (``on_front``)

    @property
    def run(self) -> Cost:
        """Of a whole training."""
        return next(cost for cost in self.costs if cost.work.is_run)

    @property
    def epoch(self) -> Cost | None:
        """Of an epoch; None where its samples are not known."""
        return next((cost for cost in self.costs if cost.work.epochs == 1 and not cost.work.is_run), None)

    @property
    def spent(self) -> Estimate:
        """What is to be small next to the time: money, or without a price device time."""
        return self.run.money or self.run.device_s


@dataclass(frozen=True)
class Limited:
    """The best way within a limit, and how likely it keeps it.

    ``surer`` keeps it with 95% where ``way`` does not. ``keeps`` is False where no way is expected to: then
    ``way`` is the nearest to it.
    """

    limit: float
    way: Way
    probability: float
    keeps: bool
    surer: Way | None = None


@dataclass(frozen=True)
class Worth:
    """Up to how many devices a batch is worth it.

    Each further one brings at least half of one device, or all of them together are faster and cheaper.
    """

    fewest: Way
    way: Way
    speedup: Estimate  # of ``way`` over ``fewest``
    further: Way | None  # of the larger world sizes that where each further device brings most: ``returns``
    returns: float | None  # of one device's throughput


@dataclass(frozen=True)
class Outlook:
    """A forecast with all that it costs."""

    forecast: Forecast
    prices: Prices
    work: tuple[Work, ...]
    ways: tuple[Way, ...]
    worth: tuple[Worth, ...]  # by batch
    within: Limited | None  # the cheapest in a time, in s
    at_most: Limited | None  # the fastest for an amount of money
    scalings: tuple[MeasuredScaling, ...]  # of what was measured
    laws: Mapping[int, ByLaw]  # by batch, where nothing could be predicted
    returns: tuple[tuple[int, tuple[MarginalReturn, ...]], ...]  # by batch, under weak scaling


def outlook(
    forecast: Forecast,
    work: Sequence[Work],
    prices: Prices,
    within_s: float | None = None,
    at_most: float | None = None,
) -> Outlook:
    """Every way to do ``work``, and the answers to the limits that are given.

    ``at_most`` is in the prices' currency; without a price it has no answer.
    """
    ways = _ways(forecast, work, prices)
    batches = dict.fromkeys(way.expected.batch_size for way in ways)
    worth = [_worth([way for way in ways if way.expected.batch_size == batch]) for batch in batches]
    paid = [way for way in ways if way.run.money is not None]
    scalings = measured_scalings(forecast.group)
    return Outlook(
        forecast=forecast,
        prices=prices,
        work=tuple(work),
        ways=ways,
        worth=tuple(worth),
        within=_limited(ways, within_s, _time, _spent) if within_s is not None else None,
        at_most=_limited(paid, at_most, _spent, _time) if at_most is not None else None,
        scalings=scalings,
        laws=_laws(forecast, scalings),
        returns=tuple(_returns_of(forecast, scalings)),
    )


def _returns_of(
    forecast: Forecast, scalings: Sequence[MeasuredScaling]
) -> Iterator[tuple[int, tuple[MarginalReturn, ...]]]:
    """What further devices brought to each batch, as measured; of each world size on the fewest nodes."""
    if forecast.group.scaling == "strong":
        return
    for batch in dict.fromkeys(each.batch_size for each in scalings):
        packed: dict[int, MeasuredScaling] = {}
        for each in (one for one in scalings if one.batch_size == batch):
            known = packed.get(each.shape.world_size)
            if known is None or each.shape.nodes < known.shape.nodes:
                packed[each.shape.world_size] = each
        found = marginal_returns((size, each.speedup) for size, each in packed.items() if each.speedup)
        if found:
            yield batch, found


def _laws(forecast: Forecast, scalings: Sequence[MeasuredScaling]) -> dict[int, ByLaw]:
    """By batch, what a law makes of its speed-up on the most devices, where nothing could be predicted.

    Under weak scaling of two numbers of devices: of more, what further ones brought is measured.
    """
    is_strong, sizes = forecast.group.scaling == "strong", forecast.group.world_sizes
    if forecast.answered or forecast.scaling != forecast.group.scaling or (not is_strong and len(sizes) > 2):
        return {}
    asked = sorted({each.shape.world_size for each in forecast.predicted})
    over_one = sorted(
        (each for each in scalings if each.baseline_world_size == 1 and each.shape.world_size > 1),
        key=lambda each: (each.batch_size, each.shape.world_size),
    )
    found = {
        each.batch_size: by_law(
            each.speedup,
            each.shape.world_size,
            is_strong=is_strong,
            asked=asked,
            most=each.batch_size / forecast.group.passes if is_strong else math.inf,
        )
        for each in over_one
        if each.speedup is not None
    }
    return {batch: law for batch, law in found.items() if law is not None}


def probability_of_at_most(estimate: Estimate, limit: float) -> float:
    """How likely a positive quantity is at most ``limit`` in another run: its logarithm is taken as normal.

    Without an interval it is so or not.
    """
    log = math.log(limit / estimate.value)
    deviation = estimate.again_log_half_width / NORMAL_95
    if deviation == 0:
        return 1.0 if log >= 0 else 0.0
    return 0.5 * (1 + math.erf(log / deviation / math.sqrt(2)))


def _ways(forecast: Forecast, work: Sequence[Work], prices: Prices) -> tuple[Way, ...]:
    every = [_way(each, work, prices) for each in forecast.everything]
    every.sort(key=lambda way: (way.expected.batch_size, way.expected.shape.world_size, way.expected.shape))
    front = on_front([(way.run.time_s, way.spent) for way in every])
    return tuple(Way(way.expected, way.costs, best) for way, best in zip(every, front, strict=True))


def _way(expected: Expected, work: Sequence[Work], prices: Prices) -> Way:
    step_s, shape = expected.total_step_s, expected.shape
    assert step_s is not None  # refused ones are no ways
    return Way(
        expected,
        tuple(
            cost_of(
                piece,
                step_s.scaled(piece.samples / expected.samples),
                shape.world_size,
                shape.nodes,
                prices,
                expected.joules_per_sample,
            )
            for piece in work
        ),
    )


def _time(way: Way) -> Estimate:
    return way.run.time_s


def _spent(way: Way) -> Estimate:
    return way.spent


def _limited(
    ways: Sequence[Way],
    limit: float,
    limited: Callable[[Way], Estimate],
    wanted: Callable[[Way], Estimate],
) -> Limited | None:
    """Of the ways that are expected to keep the limit the one with least of what is ``wanted`` small."""
    if not ways:
        return None
    keeping = [way for way in ways if limited(way).value <= limit]
    if not keeping:
        nearest = min(ways, key=lambda way: limited(way).value)
        return Limited(limit, nearest, probability_of_at_most(limited(nearest), limit), keeps=False)
    best = min(keeping, key=lambda way: wanted(way).value)
    probability = probability_of_at_most(limited(best), limit)
    sure = [way for way in keeping if probability_of_at_most(limited(way), limit) >= SURE]
    surer = min(sure, key=lambda way: wanted(way).value) if sure and probability < SURE else None
    return Limited(limit, best, probability, keeps=True, surer=surer)


def _worth(ways: Sequence[Way]) -> Worth:
    """Of the ways of one batch, at each world size the fastest, the fewest devices first."""
    fastest: dict[int, Way] = {}
    for way in sorted(ways, key=lambda way: way.run.time_s.value):
        fastest.setdefault(way.expected.shape.world_size, way)
    ordered = [fastest[size] for size in sorted(fastest)]
    fewest = chosen = ordered[0]
    for way in ordered[1:]:
        if _returns(fewest, chosen, way) >= LEAST_RETURN or _beats(way, chosen):
            chosen = way
    larger = [way for way in ordered if _size(way) > _size(chosen)]
    further = max(larger, key=lambda way: _returns(fewest, chosen, way), default=None)
    return Worth(
        fewest=fewest,
        way=chosen,
        speedup=unpaired_ratio(fewest.run.time_s, chosen.run.time_s),
        further=further,
        returns=_returns(fewest, chosen, further) if further else None,
    )


def _beats(way: Way, other: Way) -> bool:
    """Whether it is faster, and cheaper too: as devices of one node are that is paid whole."""
    return way.run.time_s.value < other.run.time_s.value and way.spent.value <= other.spent.value


def _returns(fewest: Way, fewer: Way, more: Way) -> float:
    """What each device of ``more`` beyond ``fewer`` brings, in devices as good as those of ``fewest``."""
    one_rate = 1 / (fewest.run.time_s.value * _size(fewest))
    gained = 1 / more.run.time_s.value - 1 / fewer.run.time_s.value
    return gained / (_size(more) - _size(fewer)) / one_rate


def _size(way: Way) -> int:
    return way.expected.shape.world_size
