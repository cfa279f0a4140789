"""Amdahl's law through the measured step times: what everyone knows, beside what raybench predicts.

Amdahl (1967), "Validity of the single processor approach to achieving large scale computing capabilities",
AFIPS 30: the speed-up of n devices is 1 / (f + (1 - f) / n). With the same batch on each device (weak
scaling) n devices do n times the work of one, so the step lasts T(n) = T(1) n / speed-up = T(1) (1 + f (n -
1)). With the same global batch (strong scaling) it lasts T(n) = T(1) / speed-up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from raybench.analysis.batch_lines import amdahl_speedup, devices_until
from raybench.analysis.estimates.statistics import Estimate, t_quantile
from raybench.analysis.prediction.points import MeasuredPoint, Question

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

    def devices_until(self, least_return: float) -> int | None:
        """``batch_lines.devices_until`` by this fraction."""
        return devices_until(self.serial_fraction.value, least_return)


@dataclass(frozen=True)
class AmdahlFit:
    """The law through each line of points, which have one batch per device, or one global batch if strong."""

    lines: Mapping[int, AmdahlLine]  # by batch per device, or by global batch if ``is_strong``
    is_strong: bool

    def step_time_s(self, question: Question) -> float | None:
        """A step by the law of its batch, in s; None for a batch without a line."""
        n = question.shape.world_size
        line = self.lines.get(_batch_of(question, self.is_strong))
        if line is None:
            return None
        return line.one_device_s / line.speedup(n) * (1 if self.is_strong else n)


def fit_amdahl(
    points: Sequence[MeasuredPoint], scaling: Literal["weak", "strong"] | None = None
) -> AmdahlFit | None:
    """The law fitted to logarithms, least absolute residuals; None without two world sizes of a batch.

    ``scaling``: in which the points were measured; None: weak, or strong where no batch per device was
    measured at two world sizes.
    """
    for is_strong in (False, True) if scaling is None else (scaling == "strong",):
        lines = _lines(points, is_strong)
        if lines:
            return AmdahlFit({batch: line.law() for batch, line in lines.items()}, is_strong)
    return None


@dataclass(frozen=True)
class _Line:
    sizes: Floats
    log_rate: Floats  # of the line's batches a second

    def residuals(self, f: float) -> Floats:
        """Measured less law, with the level that fits best."""
        apart = self.log_rate - _log_speedup(f, self.sizes)
        return np.asarray(apart - np.median(apart), dtype=np.float64)

    def law(self) -> AmdahlLine:
        """The law that fits best."""
        f = _least(lambda tried: float(np.abs(self.residuals(tried)).sum()))
        degrees = max(1, len(self.sizes) - 2)
        # the mean absolute deviation of a normal variable is sqrt(2 / pi) of its standard deviation
        mean = float(np.abs(self.residuals(f)).sum()) / degrees
        scale = max(LEAST_NOISE, mean * math.sqrt(math.pi / 2))
        half = t_quantile(degrees) * scale / math.sqrt(float((self.slope(f) ** 2).sum()))
        found = Estimate(f, max(0.0, f - half), min(1.0, f + half), len(self.sizes))
        level = np.median(self.log_rate - _log_speedup(f, self.sizes))
        return AmdahlLine(found, float(np.exp(-level)))

    def slope(self, f: float) -> Floats:
        """Of the law's logarithm by ``f``, less its mean."""
        slope = (_log_speedup(f + STEP, self.sizes) - _log_speedup(f, self.sizes)) / STEP
        return np.asarray(slope - slope.mean(), dtype=np.float64)


def _lines(points: Sequence[MeasuredPoint], is_strong: bool) -> dict[int, _Line]:
    """The points of each batch that was measured at two world sizes or more."""
    groups: dict[int, list[MeasuredPoint]] = defaultdict(list)
    for point in points:
        groups[_batch_of(point, is_strong)].append(point)
    found = {}
    for batch, group in sorted(groups.items()):
        sizes = np.array([each.shape.world_size for each in group], dtype=np.float64)
        if len(np.unique(sizes)) >= 2:
            work = np.zeros(len(group)) if is_strong else np.log(sizes)
            found[batch] = _Line(sizes, work - np.log([each.step_time_s for each in group]))
    return found


def _batch_of(each: MeasuredPoint | Question, is_strong: bool) -> int:
    """Per device, or of all of them: as it was asked for, else what they have together."""
    if not is_strong:
        return each.batch_size
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
