"""Amdahl's law through the measured step times: what everyone knows, beside what raybench predicts.

Amdahl (1967), "Validity of the single processor approach to achieving large scale computing capabilities", AFIPS
30: the speed-up of n devices is 1 / (f + (1 - f) / n). With the same batch on each device (weak scaling) n devices do
n times the work of one, so the step lasts T(n) = T(1) n / speed-up = T(1) (1 + f (n - 1)). With the same global
batch (strong scaling) it lasts T(n) = T(1) / speed-up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from raybench.analysis.batch_lines import amdahl_speedup
from raybench.analysis.estimates.statistics import Estimate, t_quantile
from raybench.analysis.prediction.points import MeasuredPoint, Question

Floats = NDArray[np.float64]
LEAST_FRACTION = 1e-6
NOISE = 0.03  # of a logarithm: least standard error of a fit to few points


@dataclass(frozen=True)
class AmdahlFit:
    """Amdahl's serial fraction of all points together, and the step of one device for each line of points.

    A line is what was measured with one batch per device, or, where no batch was measured on two world sizes, with
    one global batch. ``is_strong`` says which.
    """

    serial_fraction: Estimate
    one_device_s: Mapping[int, float]  # by batch per device, or by global batch if ``is_strong``
    is_strong: bool

    def speedup(self, world_size: float) -> float:
        """Of so many devices over one."""
        return amdahl_speedup(self.serial_fraction.value, world_size)

    def step_time_s(self, question: Question) -> float | None:
        """A step by the law; None where the law has no one-device step for the batch that is asked for."""
        n = question.shape.world_size
        base_s = self.one_device_s.get(question.batch_size * (n if self.is_strong else 1))
        if base_s is None:
            return None
        return base_s / self.speedup(n) * (1 if self.is_strong else n)

    def devices_until(self, least_return: float) -> int | None:
        """Devices beyond which each further one returns less than ``least_return`` of one device's throughput.

        The speed-up's derivative (1 - f) / (f n + 1 - f)^2 falls below ``least_return`` at
        n = (sqrt((1 - f) / least_return) - (1 - f)) / f. None where f is 0: every device returns a whole one.
        """
        f = self.serial_fraction.value
        if f <= LEAST_FRACTION:
            return None
        return max(1, math.floor((math.sqrt((1 - f) / least_return) - (1 - f)) / f))


def fit_amdahl(points: Sequence[MeasuredPoint]) -> AmdahlFit | None:
    """The law fitted to the logarithms of step times; None where nothing was measured on two world sizes."""
    for is_strong in (False, True):
        lines = _lines(points, is_strong)
        if lines:
            return _fitted(lines, is_strong)
    return None


def _lines(points: Sequence[MeasuredPoint], is_strong: bool) -> dict[int, tuple[Floats, Floats]]:
    """World sizes and logarithms of throughput in batches of the line, for each that has two world sizes."""
    groups: dict[int, list[MeasuredPoint]] = defaultdict(list)
    for point in points:
        groups[point.batch_size * (point.shape.world_size if is_strong else 1)].append(point)
    found = {}
    for batch, group in sorted(groups.items()):
        sizes = np.array([each.shape.world_size for each in group], dtype=np.float64)
        if len(set(sizes.tolist())) >= 2:
            work = np.zeros(len(group)) if is_strong else np.log(sizes)
            found[batch] = sizes, work - np.log([each.step_time_s for each in group])
    return found


def _fitted(lines: Mapping[int, tuple[Floats, Floats]], is_strong: bool) -> AmdahlFit:
    def bases(f: float) -> dict[int, float]:
        return {
            batch: float(np.median(logs - _log_speedup(f, sizes))) for batch, (sizes, logs) in lines.items()
        }

    def residuals(f: float) -> Floats:
        level = bases(f)
        return np.concatenate(
            [logs - level[batch] - _log_speedup(f, sizes) for batch, (sizes, logs) in lines.items()]
        )

    f = _least(lambda f: float(np.abs(residuals(f)).sum()))
    degrees = max(1, len(residuals(f)) - len(lines) - 1)
    scale = max(NOISE, float(np.abs(residuals(f)).sum()) / degrees * math.sqrt(math.pi / 2))
    step = max(f, 1e-3) / 100
    slope = np.concatenate([_centred_slope(f, step, sizes) for sizes, _ in lines.values()])
    half = t_quantile(degrees) * scale / math.sqrt(float((slope**2).sum()) + 1e-300)
    estimate = Estimate(f, max(0.0, f - half), min(1.0, f + half), len(residuals(f)))
    return AmdahlFit(estimate, {batch: math.exp(-level) for batch, level in bases(f).items()}, is_strong)


def _log_speedup(f: float, sizes: Floats) -> Floats:
    return np.asarray(-np.log(f + (1 - f) / sizes), dtype=np.float64)


def _centred_slope(f: float, step: float, sizes: Floats) -> Floats:
    slope = (_log_speedup(f + step, sizes) - _log_speedup(f, sizes)) / step
    return np.asarray(slope - slope.mean(), dtype=np.float64)


def _least(error: Callable[[float], float]) -> float:
    """The serial fraction with the smallest error, between none and all."""
    grid = np.concatenate([[LEAST_FRACTION], np.geomspace(1e-4, 1.0, 41)])
    best = int(np.argmin([error(float(f)) for f in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(
        error, bounds=(float(low), float(high)), method="bounded", options={"xatol": 1e-6}
    )
    return float(found.x) if found.fun <= error(float(grid[best])) else float(grid[best])
