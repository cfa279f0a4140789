"""What a training costs on one device and on several: device time, money and energy for the same samples.

Totals are made of the mean step over all rounds, not of the typical one: the time of many
steps is their sum, and the rare slow ones that an estimator of the typical step trims are in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raybench.analysis.labels import label
from raybench.analysis.objectives import Prices, prices_of
from raybench.analysis.resolve import Facts
from raybench.analysis.scaling import one_device, scaling
from raybench.analysis.stats.statistics import (
    POSITIVE,
    Estimate,
    inverse,
    student,
    sum_of,
    unpaired_ratio,
    within,
)
from raybench.analysis.training import Comparison, TrainedGroup, TrainingResults, over_seeds, ratio_over_seeds
from raybench.records.record import TrialRecord

MILLION = 1e6


@dataclass(frozen=True)
class Work:
    """An amount of training, in samples."""

    name: str
    samples: float
    epochs: float = 0.0  # in each of which the loader starts again
    is_run: bool = False  # a whole training: what savings are counted in


@dataclass(frozen=True)
class Cost:
    """What one piece of work takes in one trial; None where a price or a measurement is missing."""

    work: Work
    time_s: Estimate
    device_s: Estimate  # time x devices
    money: Estimate | None
    energy_joules: float | None  # of all devices, as their counters say: without interval
    is_trained: bool = False  # the time is that of epochs that were trained, else of steps
    trained_ratio: Estimate | None = None  # device time over one device's, of epochs that were trained


@dataclass(frozen=True)
class CostPoint:
    """One trial's costs, and how they compare with one device's.

    ``world_size`` is the record's, or 1: of one device that was measured in the rounds of several only.
    """

    record: TrialRecord
    world_size: int
    label: str
    costs: tuple[Cost, ...]  # one for each piece of work
    speedup: Estimate | None  # over one device, by mean steps
    cost_ratio: Estimate | None  # device time over one device's, of mean steps
    saved_s: Estimate | None  # over ``cost.runs`` runs, against one device; negative: lost
    saved_money: Estimate | None


def restart_time(record: TrialRecord) -> Estimate | None:
    """What a restart of the loader adds to an epoch's steps, in s: the mean; n counts restarts.

    None where it was not measured: synthetic input, trials of a search, a loader that failed.
    """
    restarts = record.steps.restarts if record.steps is not None else ()
    return student([restart.cost_s for restart in restarts]) if len(restarts) > 1 else None


def steps_time(record: TrialRecord, samples: float, step_s: Estimate | None = None) -> Estimate:
    """``samples`` by the steps of a complete record, in s; ``step_s``: its mean step where it is known."""
    assert record.steps is not None
    return (step_s or scaling(record).mean_step_s).scaled(samples / record.steps.samples_per_step)


def epochs_time(
    record: TrialRecord, samples: float, epochs: float, step_s: Estimate | None = None
) -> Estimate:
    """The same with a restart of the loader in each of ``epochs``, as far as it was measured."""
    steps_s, restart_s = steps_time(record, samples, step_s), restart_time(record)
    if restart_s is None or not epochs:
        return steps_s
    return within(sum_of(steps_s, restart_s.scaled(epochs)), POSITIVE)  # few restarts have a wide interval


def works(epoch_samples: float | None = None, epochs: float | None = None) -> tuple[Work, ...]:
    """A million samples, and an epoch and a run where their samples are known; else a run is the million."""
    known_run = bool(epoch_samples and epochs)
    found = [Work("a million samples", MILLION, is_run=not known_run)]
    if epoch_samples:
        found.append(Work(f"an epoch of {epoch_samples:,.0f} samples", epoch_samples, 1))
    if epoch_samples and epochs:
        number = "1 epoch" if epochs == 1 else f"{epochs:g} epochs"
        found.append(Work(f"a run of {number}", epoch_samples * epochs, epochs, is_run=True))
    return tuple(found)


def costs(results: Facts, pieces: Sequence[Work]) -> tuple[CostPoint, ...]:
    """Every point of every curve, in the curves' order; oversubscribed trials have no cost worth a word.

    One device that has no trial of its own stands there as it was in the rounds of the most devices.
    """
    records = {record.trial_id: record for record in results.complete}
    found, seen = list[CostPoint](), set[str]()
    for curve in results.curves:
        there = [records[point.trial_id] for point in curve.points]
        if there[0].config.world_size > 1 and not there[-1].config.oversubscribed:
            found += _one_beside(results, there[-1], pieces)
        for record in there:
            if record.trial_id not in seen and not record.config.oversubscribed:
                found.append(_point(results, record, pieces))
            seen.add(record.trial_id)
    return tuple(found)


def _one_beside(results: Facts, record: TrialRecord, pieces: Sequence[Work]) -> list[CostPoint]:
    """One device in the rounds of a trial on several; nothing where it was not measured in them."""
    one = one_device(record, results.scaling(record))
    if one is None:
        return []
    prices, share, step_s = prices_of(results.study), 1.0, one.mean_step_s
    if record.config.scaling == "weak":
        share = 1 / record.config.world_size  # of the record's samples in a step
    config = record.config.model_copy(
        update={"setting": record.config.setting.at(1), "world_size": 1, "placement": "pack"}
    )
    every = tuple(
        cost_of(work, epochs_time(record, work.samples, work.epochs, step_s.scaled(1 / share)), 1, 1, prices)
        for work in pieces
    )
    return [CostPoint(record, 1, label(results.study, config), every, None, None, None, None)]


def extra_cost(results: Facts, record: TrialRecord) -> Estimate | None:
    """What a sample costs on the record's devices over what it costs on one, less one: 0.25 is 25% more.

    In money where there is a price, else in device time. None where it has no speed-up over one device, or
    has more workers than cores.
    """
    speedup, prices = _over_one_device(results, record), prices_of(results.study)
    if speedup is None or record.config.oversubscribed:
        return None
    size = record.config.world_size
    one, many = prices.of_second(1, 1), prices.of_second(size, record.nodes or 1)
    return less(inverse(speedup).scaled(many / one if many and one else size), 1.0)


def _over_one_device(results: Facts, record: TrialRecord) -> Estimate | None:
    """The speed-up by mean steps where it is one of several devices over one."""
    found = results.scaling(record)
    if record.config.world_size == 1 or found.baseline is None or found.baseline.world_size != 1:
        return None
    return found.mean_speedup


def _device_time_ratio(speedup: Estimate, world_size: int) -> Estimate:
    """Device time over one device's: n / speed-up, paired as the speed-up is."""
    return inverse(speedup).scaled(world_size)


def _joules_a_sample(record: TrialRecord) -> float | None:
    measurement = record.steps
    if measurement is None or not measurement.energy_joules:
        return None
    return measurement.energy_joules / measurement.samples_per_step


def _point(results: Facts, record: TrialRecord, pieces: Sequence[Work]) -> CostPoint:
    size, prices, nodes = record.config.world_size, prices_of(results.study), record.nodes or 1
    speedup, step_s = _over_one_device(results, record), results.scaling(record).mean_step_s
    runs, joules = results.study.cost.runs, _joules_a_sample(record)
    every = tuple(
        cost_of(work, epochs_time(record, work.samples, work.epochs, step_s), size, nodes, prices, joules)
        for work in pieces
    )
    run = next(work for work in pieces if work.is_run)
    saved_s = saved_money = None
    if speedup is not None:
        # the difference to one device by the paired ratio: n devices' time x (speed-up - 1)
        steps_s = steps_time(record, run.samples, step_s).value
        saved_s = less(speedup, 1.0).scaled(steps_s)
        # money in units of a second of one device on one node
        one_price, price = prices.of_second(1, 1), prices.of_second(size, nodes)
        dear = price / one_price if price and one_price else size
        saved_paid_s = less(speedup, dear).scaled(steps_s)
        one_s, many_s = _restarts(results, record)
        if one_s is not None and many_s is not None and run.epochs:
            saved_s = sum_of(saved_s, _less_of(one_s, many_s).scaled(run.epochs))
            restarts_s = _less_of(one_s, many_s.scaled(dear)).scaled(run.epochs)
            saved_paid_s = sum_of(saved_paid_s, restarts_s)
        saved_s = saved_s.scaled(runs)
        saved_money = saved_paid_s.scaled(runs * one_price) if one_price else None
    return CostPoint(
        record=record,
        world_size=size,
        label=results.label(record),
        costs=every,
        speedup=speedup,
        cost_ratio=_device_time_ratio(speedup, size) if speedup else None,
        saved_s=saved_s,
        saved_money=saved_money,
    )


def cost_of(
    work: Work,
    time_s: Estimate,
    devices: int,
    nodes: int,
    prices: Prices,
    joules_per_sample: float | None = None,
    *,
    is_trained: bool = False,
) -> Cost:
    """What a piece of work costs that takes ``time_s`` there, measured or predicted."""
    price = prices.of_second(devices, nodes)
    return Cost(
        work=work,
        time_s=time_s,
        device_s=time_s.scaled(devices),
        money=time_s.scaled(price) if price is not None else None,
        energy_joules=None if joules_per_sample is None else joules_per_sample * work.samples,
        is_trained=is_trained,
    )


def _restarts(results: Facts, record: TrialRecord) -> tuple[Estimate | None, Estimate | None]:
    """What a restart of the loader costs one device, and those of the record.

    Where one device has no trial of its own it counts as the record's.
    """
    alone = (
        restart_time(each)
        for each in results.references
        if each.config.world_size == 1 and each.config.same_question(record.config)
    )
    many_s = restart_time(record)
    return next((each for each in alone if each is not None), many_s), many_s


def _less_of(one: Estimate, other: Estimate) -> Estimate:
    """``one`` less ``other``, which is independent of it."""
    return sum_of(one, other.scaled(-1))


def less(estimate: Estimate, amount: float) -> Estimate:
    """The difference to a number."""
    value, low, high = (each - amount for each in (estimate.value, estimate.low, estimate.high))
    return Estimate(value, low, high, estimate.n, estimate.starts)


@dataclass(frozen=True)
class TrainedTime:
    """Epochs of one setting on a number of devices: trained, and by its steps.

    Fewer than three seeds have no interval; the trained times' n counts seeds.
    """

    record: TrialRecord  # that has the steps
    epoch_s: Estimate  # training, without evaluation
    by_steps_s: Estimate
    speedup: Estimate | None  # of the epochs trained, over one device's
    speedup_by_steps: Estimate | None
    differs: bool  # one of the two, beyond the intervals and by ``search.minimum_gain``


def trained_times(base: Facts, training: TrainingResults | None) -> tuple[TrainedTime, ...]:
    """Of each trained setting that has a trial of steps; none where an epoch's samples are not known."""
    samples = base.epoch_samples
    if training is None or not samples:
        return ()
    least, found = math.log1p(base.study.search.minimum_gain), []
    for group in training.groups:
        record = base.reference_of(group.config)
        if record is None or record.config.oversubscribed:
            continue
        comparison = training.comparison(group)
        by_steps_s = epochs_time(record, samples, 1, base.scaling(record).mean_step_s)
        speedup = comparison.epoch_speedup if comparison else None
        beside = _over_one_device(base, record)
        pairs = [(group.epoch_time_s, by_steps_s), *([(speedup, beside)] if speedup and beside else [])]
        ratios = [unpaired_ratio(one, other) for one, other in pairs]
        differs = any(each.excludes(1.0) and abs(math.log(each.value)) >= least for each in ratios)
        found.append(TrainedTime(record, group.epoch_time_s, by_steps_s, speedup, beside, differs))
    return tuple(found)


def with_trained(
    base: Facts, points: Sequence[CostPoint], training: TrainingResults | None, pieces: Sequence[Work]
) -> tuple[CostPoint, ...]:
    """``points`` with the epochs and runs that were trained in the place of those by steps.

    One device's only where several were trained too: what is compared is told in one way.
    """
    return (
        tuple(_trained_point(base, each, training, pieces) for each in points) if training else tuple(points)
    )


def _trained_point(
    base: Facts, point: CostPoint, training: TrainingResults, pieces: Sequence[Work]
) -> CostPoint:
    own = base.reference(point.record)
    if point.world_size != own.config.world_size:
        return point
    group = next((each for each in training.groups if base.reference_of(each.config) is own), None)
    compared = [each.base for each in training.comparisons]
    if group is None:
        by_steps_alone = not any(each.config.same_question(own.config) for each in compared)
        return point if by_steps_alone else replace(point, saved_s=None, saved_money=None)
    if point.world_size == 1 and all(each is not group for each in compared):
        return point
    prices, nodes = prices_of(base.study), point.record.nodes or 1
    comparison = training.comparison(group)
    every = tuple(
        _cost(cost, work, group, comparison, nodes, prices)
        for cost, work in zip(point.costs, pieces, strict=True)
    )
    run = next(work for work in pieces if work.is_run)
    saved_s = saved_money = None
    if comparison is not None and run.epochs:
        runs, paid = base.study.cost.runs, [prices.of_second(1, 1), prices.of_second(point.world_size, nodes)]
        saved_s = _saved(comparison, run, 1.0, 1.0, runs)
        if paid[0] is not None and paid[1] is not None:
            saved_money = _saved(comparison, run, paid[0], paid[1], runs)
    return replace(
        point,
        costs=every,
        saved_s=saved_s if run.epochs else point.saved_s,
        saved_money=saved_money if run.epochs else point.saved_money,
    )


def _cost(
    cost: Cost, work: Work, group: TrainedGroup, comparison: Comparison | None, nodes: int, prices: Prices
) -> Cost:
    """Of a run as long as the training the sum of its epochs, else so many of its mean ones."""
    if not work.epochs:
        return cost
    devices = group.world_size
    time_s = over_seeds([_time(group, place, work) for place in range(len(group.runs))], POSITIVE)
    assert time_s is not None
    told = cost_of(work, time_s, devices, nodes, prices, is_trained=True)
    ratios = [many_s / one_s for one_s, many_s in _pairs(comparison, work)] if comparison else []
    trained_ratio = ratio_over_seeds(ratios).scaled(devices) if ratios else None
    return replace(told, energy_joules=cost.energy_joules, trained_ratio=trained_ratio)


def _pairs(comparison: Comparison, work: Work) -> list[tuple[float, float]]:
    """Seconds of ``work`` on one device and on several, for each seed that both have."""
    group, one = comparison.group, comparison.base
    ones = {each.seed: place for place, each in enumerate(one.runs)}
    return [
        (_time(one, ones[each.seed], work), _time(group, place, work))
        for place, each in enumerate(group.runs)
        if each.seed in ones
    ]


def _time(group: TrainedGroup, place: int, work: Work) -> float:
    run = group.runs[place]
    if work.is_run and len(run.epochs) == work.epochs:
        return sum(epoch.train_s for epoch in run.epochs)
    return run.epoch_time_s * work.epochs


def _saved(comparison: Comparison, run: Work, one_price: float, price: float, runs: float) -> Estimate | None:
    """What ``runs`` cost one device more than several, paired by seed; prices of a second."""
    found = over_seeds([one_s * one_price - many_s * price for one_s, many_s in _pairs(comparison, run)])
    return found.scaled(runs) if found else None
