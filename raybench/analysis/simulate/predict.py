"""From measured steps to steps on other numbers of devices, by raybench's model, by Amdahl's law and naively.

Amdahl (1967), "Validity of the single processor approach to achieving large scale computing capabilities",
AFIPS 30: the speed-up of n devices is 1 / (f + (1 - f) / n), for a fixed amount of work. So it is asked only
under strong scaling, where the step of a global batch lasts T(n) = T(1) / speed-up. The naive answer is the
step at the largest measured world size.

The variance of a prediction's logarithm has four parts: that of the parameters and of the effects that were
never measured (so it depends on what was); a drift away from the model with every doubling beyond the largest
measured world size; the disagreement of the variants; the noise of one more measurement.
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
from raybench.analysis.simulate.fit import Posterior, chosen, fitted
from raybench.analysis.simulate.model import Places, swept_lines
from raybench.analysis.simulate.steps import MeasuredPoint, Prediction, Question, Refusal, Shape
from raybench.analysis.stats.statistics import Estimate, of_log, t_quantile
from raybench.errors import RequestError

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


@dataclass(frozen=True)
class AmdahlFit:
    """The law through each line of points, which have one global batch."""

    lines: Mapping[int, AmdahlLine]  # by global batch

    def step_time_s(self, question: Question) -> float | None:
        """A step by the law of its batch, in s; None for a batch without a line."""
        line = self.lines.get(_global_batch(question))
        return None if line is None else line.one_device_s / line.speedup(question.shape.world_size)


def fit_amdahl(points: Sequence[MeasuredPoint]) -> AmdahlFit | None:
    """The law of every global batch that was measured at two world sizes or more; None without any."""
    groups: dict[int, list[MeasuredPoint]] = defaultdict(list)
    for point in points:
        groups[_global_batch(point)].append(point)
    lines = dict[int, AmdahlLine]()
    for batch, group in sorted(groups.items()):
        sizes = [each.shape.world_size for each in group]
        if len(set(sizes)) > 1:
            lines[batch] = amdahl_line(sizes, [1 / each.step_time_s for each in group])
    return AmdahlFit(lines) if lines else None


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


def _global_batch(each: MeasuredPoint | Question) -> int:
    """As it was asked for, else what the devices have together."""
    passes = each.passes if isinstance(each, Question) else 1
    return each.global_batch_size or each.batch_size * each.shape.world_size * passes


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
DRIFT = 0.05  # standard deviation of a logarithm, for each doubling beyond what was measured
DEGREES = 8.0  # of the quantile: noise and sizes of effects are themselves estimates


@dataclass(frozen=True)
class Joint:
    """Logarithms at some questions, shape ``(variants, questions)``, and their variances.

    Of ``log_step``, and of ``log_efficiency``: one device's step over it. Noise is not in the variances.
    """

    log_step: Floats
    log_efficiency: Floats
    step_variance: Floats  # (variants, questions)
    efficiency_variance: Floats  # (variants, questions)
    one_device_variance: Floats
    noise: Floats  # (variants,)

    @staticmethod
    def of(variants: Sequence[Posterior], questions: Sequence[Question], largest: int) -> Joint:
        """The answers of all variants; ``largest`` is the largest measured world size."""
        places = Places.of(questions)
        drift = DRIFT * np.maximum(0.0, np.log2(places.world_size / largest))
        found = []
        for variant in variants:
            known = variant.with_effects_of(questions)
            at = known.slopes(questions)
            step = at.matrix(at.step, at.step_by_effects, len(known.groups))
            one = at.matrix(at.one_device, at.compute_by_effects, len(known.groups))
            both = one - step
            found.append(
                (
                    at.parts.log_step,
                    at.parts.log_one_device - at.parts.log_step,
                    ((step @ known.covariance) * step).sum(axis=1) + drift**2,
                    ((both @ known.covariance) * both).sum(axis=1) + drift**2,
                    ((one @ known.covariance) * one).sum(axis=1),
                    max(known.noise, LEAST_NOISE),
                )
            )
        return Joint(*(np.array(each) for each in zip(*found, strict=True)))

    def steps(self, num_points: int) -> list[Estimate]:
        """The step times, in s, with intervals for a new measurement.

        No step is shorter than one device's: the interval ends where that one's does.
        """
        variance = self.step_variance + self.noise[:, None] ** 2
        pairs = zip(_estimates(self.log_step, variance, num_points), self._least_s(), strict=True)
        return [replace(step, low=max(step.low, min(least_s, step.value))) for step, least_s in pairs]

    def efficiencies(self, num_points: int) -> list[Estimate]:
        """One device's step over the step, with intervals for a new measurement of the step.

        None is above 1 but for noise: the interval ends there.
        """
        noise = self.noise[:, None] ** 2
        found = _estimates(self.log_efficiency, self.efficiency_variance + noise, num_points)
        most = float(np.exp(t_quantile(DEGREES) * noise.mean() ** 0.5))
        return [replace(each, high=min(each.high, max(most, each.value))) for each in found]

    def one_device(self, num_points: int) -> list[Estimate]:
        """One device's step in s, with the interval of the step itself, not of a measurement."""
        return _estimates(self.log_step + self.log_efficiency, self.one_device_variance, num_points)

    def _least_s(self) -> list[float]:
        """The shortest that another measurement of one device may be."""
        variance = self.one_device_variance + self.noise[:, None] ** 2
        return [each.low for each in _estimates(self.log_step + self.log_efficiency, variance, 0)]


def _estimates(logs: Floats, variances: Floats, num_points: int) -> list[Estimate]:
    """The variants' mean, and the interval that holds their disagreement too."""
    halves = t_quantile(DEGREES) * np.sqrt(variances.mean(axis=0) + logs.var(axis=0))
    pairs = zip(logs.mean(axis=0).tolist(), halves.tolist(), strict=True)
    return [of_log(log, half, num_points) for log, half in pairs]


@dataclass(frozen=True)
class Fitted:
    """What the measured points say; asks nothing further of them."""

    points: tuple[MeasuredPoint, ...]
    amdahl: AmdahlFit | None  # strong scaling, and a batch at two world sizes
    variants: tuple[Posterior, ...]  # of the model, as ``chosen``; their mean is the answer
    held_out_error: float | None  # relative; None where too few world sizes were measured to hold any out
    crosses_nodes: bool  # by a measured point, or in a sweep of the network

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """Those measured, ascending."""
        return tuple(sorted({each.shape.world_size for each in self.points}))

    def compute_s(self, batch_size: int) -> Estimate:
        """The step of one device without any other, as a function of the batch, in s."""
        question = Question(Shape((1,)), batch_size)
        return Joint.of(self.variants, [question], self.world_sizes[-1]).one_device(len(self.points))[0]

    def predict(self, questions: Sequence[Question]) -> list[Prediction]:
        """An answer to each question, in order; what the points cannot say is refused, with the reason."""
        if not questions:
            return []
        joint = Joint.of(self.variants, questions, self.world_sizes[-1])
        steps, efficiencies = joint.steps(len(self.points)), joint.efficiencies(len(self.points))
        return [self._answer(*each) for each in zip(questions, steps, efficiencies, strict=True)]

    def _answer(self, question: Question, step: Estimate, efficiency: Estimate) -> Prediction:
        naive = naive_step_time_s(self.points, question.batch_size)
        amdahl = self.amdahl.step_time_s(question) if self.amdahl else None
        refused = self._refusal(question.shape)
        if refused:
            return Prediction(question, None, None, naive, amdahl, refused)
        return Prediction(question, step, efficiency, naive, amdahl)

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

    Raises ``RequestError`` where no point has a positive step time and batch. Too few world sizes are no
    error: the predictions then say why they are refused.
    """
    usable = tuple(each for each in points if _is_usable(each))
    if not usable:
        raise RequestError(
            f"predict: a step time and a batch above 0 are needed (received {len(points)} without)"
        )
    swept = swept_lines(link)
    names, error = chosen(usable, swept)
    variants = tuple(fitted(usable, name, swept) for name in names)
    crosses = any(each.shape.nodes > 1 for each in usable) or (swept is not None and swept.crosses_nodes)
    amdahl = fit_amdahl(usable) if scaling == "strong" else None
    return Fitted(usable, amdahl, variants, error, crosses)


def naive_step_time_s(points: Sequence[MeasuredPoint], batch_size: int) -> float | None:
    """The mean step at the largest world size at which the batch was measured; None where it was not."""
    same = [each for each in points if each.batch_size == batch_size]
    if not same:
        return None
    largest = max(each.shape.world_size for each in same)
    return float(np.mean([each.step_time_s for each in same if each.shape.world_size == largest]))


def _is_usable(point: MeasuredPoint) -> bool:
    return 0 < point.step_time_s < math.inf and point.batch_size > 0 and point.shape.world_size > 0
