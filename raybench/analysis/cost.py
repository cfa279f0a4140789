"""What a training costs on one device and on several: device time, money and energy for the same samples.

Totals are made of the mean step over all rounds, not of the typical one: the time of many
steps is their sum, and the rare slow ones that an estimator of the typical step trims are in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from raybench.analysis.labels import label
from raybench.analysis.objectives import price_of
from raybench.analysis.resolve import Facts
from raybench.analysis.settings import SettingPoint, scaled_settings
from raybench.analysis.stats.statistics import (
    LEAST_VALUES,
    POSITIVE,
    Estimate,
    inverse,
    sum_of,
    unpaired_ratio,
)
from raybench.analysis.training import TrainedGroup, TrainingResults, over_seeds

MILLION = 1e6
RUNS = 10  # that savings are given for


@dataclass(frozen=True)
class Work:
    """An amount of training, in samples."""

    samples: float
    epochs: float = 0.0  # 0: the length of a run is not known


@dataclass(frozen=True)
class Cost:
    """What one piece of work takes in one trial; None where a price or a measurement is missing."""

    time_s: Estimate
    device_s: Estimate  # time x devices
    money: Estimate | None
    energy_joules: float | None = None  # of all devices, as their counters say: without interval


@dataclass(frozen=True)
class CostPoint:
    """What a run costs with a setting on one number of devices, and how that compares with one device."""

    at: SettingPoint
    label: str
    cost: Cost
    speedup: Estimate | None = None  # over one device, by mean steps
    device_time_ratio: Estimate | None = None  # device time over one device's, made of what ``cost`` is
    saved_s: Estimate | None = None  # over ``RUNS`` runs, against one device; negative: lost
    saved_money: Estimate | None = None
    is_trained: bool = False  # made of the epochs that were trained, else of steps


def run_of(epoch_samples: float | None = None, epochs: float | None = None) -> Work:
    """A whole training, in which savings are counted; a million samples where its length is not known."""
    if not epoch_samples or not epochs:
        return Work(MILLION)
    return Work(epoch_samples * epochs, epochs)


def costs(results: Facts, run: Work, training: TrainingResults | None) -> tuple[CostPoint, ...]:
    """What a run costs with each setting that was scaled, on each number of devices; none oversubscribed.

    Runs that were trained stand in the place of those by steps; of one device only where several were trained
    too.
    """
    training = training if run.epochs else None
    points = (point for each in scaled_settings(results) for point in each.points)
    found = dict[tuple[str, int], CostPoint]()  # one device may be a point of several settings
    for at in (point for point in points if not point.config.oversubscribed):
        point = _by_steps(results, at, run)
        found[at.record.trial_id, at.world_size] = (
            _as_trained(results, point, run, training) if training and at.is_measured else point
        )
    return tuple(found.values())


def _by_steps(results: Facts, at: SettingPoint, run: Work) -> CostPoint:
    price, found, size = price_of(results.study), at.scaling, at.world_size
    speedup, step_s, base = found.mean_speedup, found.mean_step_s, found.baseline
    time_s = step_s.scaled(run.samples / found.samples)
    cost, steps = cost_of(time_s, size, price), at.record.steps
    if at.is_measured and steps and steps.energy_joules:
        cost = replace(cost, energy_joules=steps.energy_joules * run.samples / steps.samples_per_step)
    point = CostPoint(at, label(results.study, at.config), cost)
    if found.one_device is None or speedup is None or base is None:
        return point
    saved = partial(_saved, time_s, speedup, base.mean_step_s)
    return replace(
        point,
        speedup=speedup,
        device_time_ratio=inverse(speedup).scaled(size),  # paired as the speed-up is
        saved_s=saved(1.0).scaled(RUNS),
        saved_money=saved(size).scaled(RUNS * price) if price else None,
    )


def _saved(time_s: Estimate, speedup: Estimate, one_step_s: Estimate, price_ratio: float) -> Estimate:
    """Seconds of one device less those of several, each of which costs so many of one's: T (S - price_ratio).

    Time T and speed-up S are of the same rounds: how they vary together follows from one device's time, which
    is T S. First-order propagation, by the derivatives for the logarithms of T and S.
    """
    value, by_ratio = time_s.value * (speedup.value - price_ratio), time_s.value * speedup.value
    time, ratio, one = (each.log_half_width**2 for each in (time_s, speedup, one_step_s))
    together = (one - time - ratio) / 2
    squared = value**2 * time + by_ratio**2 * ratio + 2 * value * by_ratio * together
    half = math.sqrt(max(squared, 0.0))
    return replace(speedup, value=value, low=value - half, high=value + half, again=None)


def _as_trained(base: Facts, point: CostPoint, run: Work, training: TrainingResults) -> CostPoint:
    """By the epochs that were trained: a run as long as the training is their sum, else so many mean ones."""
    own, compared = base.fit.reference(point.at.record), [each.base.config for each in training.comparisons]
    group = next((each for each in training.groups if base.reference_of(each.config) is own), None)
    if group is None:
        # of two kinds of figures nothing is the difference
        one_is_trained = any(each.same_question(own.config) for each in compared)
        return replace(point, saved_s=None, saved_money=None) if one_is_trained else point
    if point.at.world_size == 1 and group.config not in compared:
        return point
    price, comparison = price_of(base.study), training.comparison(group)
    time_s = _mean_run(group, run)
    one_s, many_s = _mean_run(comparison.base, run) if comparison else None, time_s
    if one_s is not None and min(one_s.n, many_s.n) < LEAST_VALUES:  # of one of them nothing has an interval
        one_s, many_s = (replace(each, low=each.value, high=each.value) for each in (one_s, many_s))

    def saved(price: float | None, devices: int = 1) -> Estimate | None:
        if one_s is None or price is None:
            return None
        return sum_of(one_s, many_s.scaled(-devices)).scaled(RUNS * price)

    cost = cost_of(time_s, point.at.world_size, price)
    return replace(
        point,
        cost=replace(cost, energy_joules=point.cost.energy_joules),
        device_time_ratio=unpaired_ratio(many_s, one_s).scaled(point.at.world_size) if one_s else None,
        saved_s=saved(1.0),
        saved_money=saved(price, point.at.world_size),
        is_trained=True,
    )


def _mean_run(group: TrainedGroup, run: Work) -> Estimate:
    """The mean over seeds: as long as the training, else so many mean epochs."""
    times_s = [
        sum(epoch.train_s for epoch in each.epochs)
        if len(each.epochs) == run.epochs
        else each.epoch_time_s * run.epochs
        for each in group.runs
    ]
    found = over_seeds(times_s, POSITIVE)
    assert found is not None  # every run has a time
    return found


def cost_of(time_s: Estimate, devices: int, price: float | None) -> Cost:
    """What a piece of work costs that takes ``time_s`` there; ``price``: of a second of one device."""
    device_s = time_s.scaled(devices)
    return Cost(time_s, device_s, device_s.scaled(price) if price is not None else None)
