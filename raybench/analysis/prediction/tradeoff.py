"""Time against cost on measured and predicted world sizes: the front, limits, how many are worth it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from raybench.analysis.batch_lines import devices_until, serial_fraction
from raybench.analysis.cost import Cost, Work, cost_of
from raybench.analysis.estimates.statistics import Estimate, unpaired_ratio
from raybench.analysis.objectives import on_front
from raybench.analysis.prediction.amdahl import AmdahlFit
from raybench.analysis.prediction.forecast import Expected, Forecast
from raybench.analysis.prediction.measured_groups import NORMAL_95
from raybench.analysis.prediction.measured_scaling import MeasuredScaling, measured_scalings
from raybench.analysis.prices import Prices

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
        """What is to be small beside the time: money, without a price device time."""
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
class SerialFraction:
    """Amdahl's f of a batch: by a fit to its world sizes, or by its speed-up on the most devices over one."""

    batch_size: int
    world_size: int | None  # None: of the fit
    fraction: Estimate
    devices: int | None  # more than these return less than half of one each; None: every one a whole one


@dataclass(frozen=True)
class Outlook:
    """A forecast with all that it costs."""

    forecast: Forecast
    prices: Prices
    work: tuple[Work, ...]
    ways: tuple[Way, ...]
    worth: tuple[Worth, ...]  # by batch
    within: Limited | None = None  # the cheapest in a time, in s
    at_most: Limited | None = None  # the fastest for an amount of money
    scalings: tuple[MeasuredScaling, ...] = ()  # of what was measured
    serial_fractions: tuple[SerialFraction, ...] = ()  # by batch


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
        serial_fractions=tuple(_serial_fractions(forecast, scalings)),
    )


def _serial_fractions(forecast: Forecast, scalings: Sequence[MeasuredScaling]) -> Iterator[SerialFraction]:
    """Of each batch, as one f of all would be that of none.

    By the law that stands beside the predictions; where there are none, as reports have it.
    """
    fit = forecast.amdahl
    if fit is not None and any(each.step_time_s is not None for each in forecast.predicted):
        yield from _of_fit(fit)
        return
    largest: dict[int, MeasuredScaling] = {}
    for each in scalings:
        known = largest.get(each.batch_size)
        if known is None or each.shape.world_size > known.shape.world_size:
            largest[each.batch_size] = each
    over_one = [
        each for each in largest.values() if each.baseline_world_size == 1 and each.shape.world_size > 1
    ]
    for each in over_one:
        if each.speedup is not None:
            size, found = each.shape.world_size, serial_fraction(each.speedup, each.shape.world_size)
            yield SerialFraction(each.batch_size, size, found, devices_until(found.value, LEAST_RETURN))
    if not over_one and fit is not None:
        yield from _of_fit(fit)


def _of_fit(fit: AmdahlFit) -> Iterator[SerialFraction]:
    for batch, line in fit.lines.items():
        yield SerialFraction(batch, None, line.serial_fraction, line.devices_until(LEAST_RETURN))


def probability_of_at_most(estimate: Estimate, limit: float) -> float:
    """How likely a positive quantity is at most ``limit``: its logarithm is taken as normal.

    Without an interval it is so or not.
    """
    log = math.log(limit / estimate.value)
    deviation = estimate.log_half_width / NORMAL_95
    if deviation == 0:
        return 1.0 if log >= 0 else 0.0
    return 0.5 * (1 + math.erf(log / deviation / math.sqrt(2)))


def _ways(forecast: Forecast, work: Sequence[Work], prices: Prices) -> tuple[Way, ...]:
    every = [_way(each, work, prices) for each in forecast.everything]
    every.sort(key=lambda way: (way.expected.batch_size, way.expected.shape.world_size, way.expected.shape))
    front = on_front([(way.run.time_s, way.spent) for way in every])
    return tuple(Way(way.expected, way.costs, best) for way, best in zip(every, front, strict=True))


def _way(expected: Expected, work: Sequence[Work], prices: Prices) -> Way:
    step_s, shape = expected.step_time_s, expected.shape
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
