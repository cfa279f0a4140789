"""From measured steps to steps on other numbers of devices, by raybench's model, by Amdahl's law and naively.

Amdahl (1967), "Validity of the single processor approach to achieving large scale computing capabilities",
AFIPS 30: the speed-up of n devices is 1 / (f + (1 - f) / n), for a fixed amount of work. So it is asked only
under strong scaling, where the step of a global batch lasts T(n) = T(1) / speed-up. The naive answer is the
step at the largest measured world size.

The variance of a prediction's logarithm has these parts: that of the fitted values; the error of any form
where it is extrapolated, which grows with every doubling beyond the largest measured world size, and for a
batch that was not measured; the noise of one more measurement.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from raybench.analysis.collectives import Link, LinkKey
from raybench.analysis.laws import amdahl_speedup
from raybench.analysis.simulate.fit import Places, Posterior, Sweep, fitted
from raybench.analysis.simulate.steps import Expected, MeasuredPoint, Question, Refusal, Shape
from raybench.analysis.stats.statistics import Estimate, of_log, t_quantile

Floats = NDArray[np.float64]
LEAST_FRACTION = 1e-6
LEAST_NOISE = 0.03  # standard deviation of a logarithm: a repeat differs by that, however well few points fit
STEP = 1e-6


@dataclass(frozen=True)
class AmdahlLine:
    """The law through the points of one batch."""

    serial_fraction: Estimate
    one_device_s: float

    def speedup(self, world_size: float) -> float:
        """Of so many devices over one."""
        return amdahl_speedup(self.serial_fraction.value, world_size)

    def step_time_s(self, world_size: float) -> float:
        """A step on so many devices, in s."""
        return self.one_device_s / self.speedup(world_size)


def fit_amdahl(points: Sequence[MeasuredPoint]) -> dict[int, AmdahlLine]:
    """The law of every global batch that was measured at two world sizes or more."""
    groups: dict[int, list[MeasuredPoint]] = defaultdict(list)
    for point in points:
        groups[_global_batch(point)].append(point)
    lines = dict[int, AmdahlLine]()
    for batch, group in sorted(groups.items()):
        sizes = [each.shape.world_size for each in group]
        if len(set(sizes)) > 1:
            lines[batch] = amdahl_line(sizes, [1 / each.step_time_s for each in group])
    return lines


def amdahl_line(world_sizes: Sequence[int], rates: Sequence[float]) -> AmdahlLine:
    """The law fitted to logarithms of rates, in work per s; least absolute residuals, one level for all."""
    sizes, log_rates = np.array(world_sizes, dtype=np.float64), np.log(rates)

    def residuals(f: float) -> Floats:
        found = log_rates - _log_speedup(f, sizes)
        return np.asarray(found - np.median(found), dtype=np.float64)

    f = _least(lambda tried: float(np.abs(residuals(tried)).sum()))
    degrees = max(1, len(sizes) - 2)
    # the mean absolute deviation of a normal variable is sqrt(2 / pi) of its standard deviation
    mean = float(np.abs(residuals(f)).sum()) / degrees
    scale = max(LEAST_NOISE, mean * math.sqrt(math.pi / 2))
    slope = (_log_speedup(f + STEP, sizes) - _log_speedup(f, sizes)) / STEP  # of the law's logarithm by f
    half = t_quantile(degrees) * scale / float(np.linalg.norm(slope - slope.mean()))
    found = Estimate(f, max(0.0, f - half), min(1.0, f + half), len(sizes))
    return AmdahlLine(found, float(np.exp(-np.median(log_rates - _log_speedup(f, sizes)))))


def _global_batch(point: MeasuredPoint) -> int:
    """As it was asked for, else what the devices have together."""
    return point.global_batch_size or point.batch_size * point.shape.world_size


def _log_speedup(f: float, sizes: Floats) -> Floats:
    return np.asarray(-np.log(f + (1 - f) / sizes), dtype=np.float64)


def _least(error: Callable[[float], float]) -> float:
    """The serial fraction with the smallest error, from none to all."""
    grid = [LEAST_FRACTION, *np.geomspace(1e-4, 1.0, 41).tolist()]
    errors = [error(f) for f in grid]
    best = int(np.argmin(errors))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(error, bounds=bounds, method="bounded", options={"xatol": 1e-7})
    return float(found.x) if found.fun < errors[best] else grid[best]


FEWEST_SIZES = 3
FARTHEST = 8  # times the largest measured world size
# Standard deviation of a logarithm, for each doubling beyond what was measured: with it about 90% of the
# intervals of generated studies hold (benchmarks/prediction.py)
GROWTH = 0.055
NEW_BATCH = 0.05  # the same of a batch that was not measured: compute is not quite a line
DEGREES = 8.0  # of the quantile: the noise is itself an estimate


@dataclass(frozen=True)
class Fitted:
    """The model through the measured points; asks nothing further of them."""

    points: tuple[MeasuredPoint, ...]
    amdahl: Mapping[int, AmdahlLine]  # by global batch, under strong scaling
    posterior: Posterior
    crosses_nodes: bool  # by a measured point, or in a sweep of the network

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """Those measured, ascending."""
        return tuple(sorted({each.shape.world_size for each in self.points}))

    def compute_s(self, batch_size: int) -> Estimate:
        """The step of one device without any other, as a function of the batch, in s."""
        log, slopes = self.posterior.log_one_device(Places.of([Question(Shape((1,)), batch_size)]))
        return self._estimates(log, self.posterior.variance(slopes))[0]

    def predict(self, questions: Sequence[Question]) -> list[Expected]:
        """An answer to each question, in order; what the points cannot say is refused, with the reason."""
        at, of = Places.of(questions), self.posterior
        (log_step, by_step), (log_one, by_one) = of.log_step(at), of.log_one_device(at)
        repeat = max(of.noise, LEAST_NOISE) ** 2
        beyond = np.maximum(0.0, np.log2(at.world_size / self.world_sizes[-1]))
        is_new = ~np.isin(at.batch, [each.batch_size for each in self.points])
        again = repeat + (GROWTH * beyond) ** 2 + (NEW_BATCH * is_new) ** 2
        steps = self._estimates(log_step, of.variance(by_step) + again)
        efficiencies = self._estimates(log_one - log_step, of.variance(by_one - by_step) + again)
        # more devices are neither faster than one nor more efficient, but for noise
        alone = self._estimates(log_one, of.variance(by_one) + repeat)
        most = math.exp(t_quantile(DEGREES) * math.sqrt(repeat))
        return [
            self._answer(
                question,
                replace(step, low=max(step.low, min(one.low, step.value))),
                replace(efficiency, high=min(efficiency.high, most)),
            )
            for question, step, efficiency, one in zip(questions, steps, efficiencies, alone, strict=True)
        ]

    def _estimates(self, logs: Floats, variances: Floats) -> list[Estimate]:
        halves = t_quantile(DEGREES) * np.sqrt(variances)
        return [
            of_log(float(log), float(half), len(self.points)) for log, half in zip(logs, halves, strict=True)
        ]

    def _answer(self, question: Question, step: Estimate, efficiency: Estimate) -> Expected:
        naive_s = naive_step_time_s(self.points, question)
        line = self.amdahl.get(question.samples)
        amdahl_s = line.step_time_s(question.shape.world_size) if line else None
        refused = self._refusal(question.shape)
        if refused:
            return Expected(question, None, None, naive_s, amdahl_s, refused)
        return Expected(question, step, efficiency, naive_s, amdahl_s)

    def _refusal(self, shape: Shape) -> Refusal | None:
        if len(self.world_sizes) < FEWEST_SIZES:
            return "too few world sizes"
        if shape.world_size > FARTHEST * self.world_sizes[-1]:
            return "too many devices"
        return "network not crossed" if shape.nodes > 1 and not self.crosses_nodes else None


def fit(
    points: Sequence[MeasuredPoint],
    link: Mapping[LinkKey, Link] | None = None,
    scaling: Literal["weak", "strong"] | None = None,
) -> Fitted:
    """The model fitted to all points together; ``link`` is what a sweep of collectives says of the network.

    ``scaling``, in which the points were measured: under strong scaling Amdahl's law is fitted too.

    Too few world sizes are no error: the predictions then say why they are refused.
    """
    sweep = Sweep.of(link)
    crosses = any(each.shape.nodes > 1 for each in points) or (sweep is not None and sweep.crosses_nodes)
    amdahl = fit_amdahl(points) if scaling == "strong" else {}
    return Fitted(tuple(points), amdahl, fitted(points, sweep), crosses)


def naive_step_time_s(points: Sequence[MeasuredPoint], asked: Question) -> float | None:
    """The mean step at the largest world size at which the batch was measured; None where it was not.

    Where a global batch is asked for it is that.
    """
    same = [each for each in points if each.batch_size == asked.batch_size]
    if asked.global_batch_size is not None:
        same = [each for each in points if each.global_batch_size == asked.global_batch_size]
    if not same:
        return None
    largest = max(each.shape.world_size for each in same)
    return float(np.mean([each.step_time_s for each in same if each.shape.world_size == largest]))
