"""What epochs took that were trained, beside what the steps of the same setting say of them.

Trained epochs speak for the time and the cost of epochs and runs: they hold all that a training has beside
its steps, but for evaluation. Steps have more repetitions and an interval; where the two differ beyond it,
that is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raybench.analysis.cost import Cost, CostPoint, Work, cost_of
from raybench.analysis.estimates.bounded import POSITIVE
from raybench.analysis.estimates.efficiency import Scaling
from raybench.analysis.estimates.epochs import epochs_time
from raybench.analysis.estimates.statistics import Estimate, unpaired_ratio
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.prices import Prices, prices_of
from raybench.analysis.trained_group import TrainedGroup, over_seeds, ratio_over_seeds
from raybench.analysis.training import Comparison, TrainingResults
from raybench.records.record import TrialRecord


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


def trained_times(base: MeasuredStudy, training: TrainingResults | None) -> tuple[TrainedTime, ...]:
    """Of each trained setting that has a trial of steps; none where an epoch's samples are not known."""
    samples = base.epoch_samples
    if training is None or not samples:
        return ()
    least, found = math.log1p(base.study.search.minimum_gain), []
    for group in training.groups:
        record = base.speaker_of(group.config)
        if record is None or record.config.oversubscribed:
            continue
        steps, comparison = base.told[record.trial_id], training.comparison(group)
        by_steps_s = epochs_time(record, samples, 1, steps.throughput_samples_per_s)
        speedup = comparison.epoch_speedup if comparison else None
        beside = _over_one(steps)
        pairs = [(group.epoch_time_s, by_steps_s), *([(speedup, beside)] if speedup and beside else [])]
        ratios = [unpaired_ratio(one, other) for one, other in pairs]
        differs = any(each.excludes(1.0) and abs(math.log(each.value)) >= least for each in ratios)
        found.append(TrainedTime(record, group.epoch_time_s, by_steps_s, speedup, beside, differs))
    return tuple(found)


def _over_one(steps: Scaling) -> Estimate | None:
    is_over_one = steps.baseline is not None and steps.baseline.world_size == 1
    return steps.speedup if is_over_one else None


def with_trained(
    base: MeasuredStudy, points: Sequence[CostPoint], training: TrainingResults | None, pieces: Sequence[Work]
) -> tuple[CostPoint, ...]:
    """``points`` with the epochs and runs that were trained in the place of those by steps.

    One device's only where several were trained too: what is compared is told in one way.
    """
    return tuple(_point(base, each, training, pieces) for each in points) if training else tuple(points)


def _point(
    base: MeasuredStudy, point: CostPoint, training: TrainingResults, pieces: Sequence[Work]
) -> CostPoint:
    own = base.speaker(point.record)
    if point.world_size != own.config.world_size:
        return point
    group = next((each for each in training.groups if base.speaker_of(each.config) is own), None)
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
