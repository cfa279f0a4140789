"""Others' laws of scaling, fitted to the same points as raybench's model.

Each takes the measured points and returns a function from questions to step times, in s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar, nnls

from raybench.analysis.laws import amdahl_speedup
from raybench.analysis.simulate.fit import naive_step_time_s
from raybench.analysis.simulate.steps import Measurement, Question

Floats = NDArray[np.float64]
Answers = Callable[[Sequence[Question]], list[float | None]]
LEAST_FRACTION = 1e-6


def naive(points: Sequence[Measurement]) -> Answers:
    """The step stays as at the largest measured world size."""
    return lambda asked: [naive_step_time_s(points, each) for each in asked]


@dataclass(frozen=True)
class AmdahlLine:
    """The law through the points of one batch."""

    serial_fraction: float
    one_device_s: float

    def speedup(self, world_size: float) -> float:
        """Of so many devices over one."""
        return amdahl_speedup(self.serial_fraction, world_size)


def amdahl_line(world_sizes: Sequence[int], rates: Sequence[float]) -> AmdahlLine:
    """The law fitted to logarithms of rates, in work per s; least absolute residuals, one level for all."""
    sizes, log_rates = np.array(world_sizes, dtype=np.float64), np.log(rates)

    def residuals(f: float) -> Floats:
        found = log_rates - _log_speedup(f, sizes)
        return np.asarray(found - np.median(found), dtype=np.float64)

    f = _least(lambda tried: float(np.abs(residuals(tried)).sum()))
    return AmdahlLine(f, float(np.exp(-np.median(log_rates - _log_speedup(f, sizes)))))


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


def amdahl(points: Sequence[Measurement]) -> Answers:
    """Amdahl (1967), a serial fraction for each batch per device: n devices do n times the work of one."""
    groups: dict[int, list[Measurement]] = defaultdict(list)
    for point in points:
        groups[point.batch_size].append(point)
    lines = dict[int, AmdahlLine]()
    for batch, group in groups.items():
        sizes = [each.shape.world_size for each in group]
        if len(set(sizes)) > 1:
            rates = [size / each.step_time_s.value for size, each in zip(sizes, group, strict=True)]
            lines[batch] = amdahl_line(sizes, rates)

    def answer(asked: Question) -> float | None:
        line, n = lines.get(asked.batch_size), asked.shape.world_size
        return None if line is None else n * line.one_device_s / line.speedup(n)

    return lambda asked: [answer(each) for each in asked]


def universal(points: Sequence[Measurement]) -> Answers:
    """Gunther (2007): throughput n / (1 + a (n-1) + b n (n-1)), for each batch; least squares, relative."""
    groups: dict[int, list[Measurement]] = defaultdict(list)
    for point in points:
        groups[point.batch_size].append(point)
    found = {batch: _relative(_of_universal(group), group) for batch, group in groups.items()}

    def answers(asked: Sequence[Question]) -> list[float | None]:
        rows = _of_universal(asked)
        return [
            float(row @ found[each.batch_size]) if each.batch_size in found else None
            for row, each in zip(rows, asked, strict=True)
        ]

    return answers


def ernest(points: Sequence[Measurement]) -> Answers:
    """Venkataraman et al. (2016), NSDI, equation 1: non-negative least squares, relative."""
    found = _relative(_of_ernest(points), points)
    return lambda asked: [float(each) for each in _of_ernest(asked) @ found]


def ernest_by_nodes(points: Sequence[Measurement]) -> Answers:
    """Ernest's form with one logarithm for the nodes and one for the devices of a node."""
    found = _relative(_of_nodes(points), points)
    return lambda asked: [float(each) for each in _of_nodes(asked) @ found]


def extra_p(points: Sequence[Measurement]) -> Answers:
    """Calotoiu et al. (2013), SC, "Using automated performance modeling to find scalability bugs".

    Its normal form with one term of n for a constant and the batch: c + d b + e n^i log2(n)^j, the exponents
    with the least relative error when every world size is left out once.
    """
    sizes = np.array([each.shape.world_size for each in points])
    groups = list(np.unique(sizes)) if len(np.unique(sizes)) > 2 else []

    def left_out_error(exponents: tuple[float, int]) -> float:
        errors = []
        for size in groups:
            kept = [each for each, n in zip(points, sizes, strict=True) if n != size]
            held = [each for each, n in zip(points, sizes, strict=True) if n == size]
            found_s = _of_extra_p(held, exponents) @ _relative(_of_extra_p(kept, exponents), kept)
            errors.append(np.mean(np.abs(found_s / np.array([each.step_time_s.value for each in held]) - 1)))
        return float(np.mean(errors)) if errors else 0.0

    best = min(EXTRA_P, key=left_out_error)
    found = _relative(_of_extra_p(points, best), points)
    return lambda asked: [float(each) for each in _of_extra_p(asked, best) @ found]


# the exponents that Extra-P tries by default, of those whose terms grow
EXTRA_P = [
    (power, log)
    for power in (0, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 1, 5 / 4, 4 / 3, 3 / 2, 2)
    for log in (0, 1, 2)
    if power or log
]


def adaptdl(points: Sequence[Measurement]) -> Answers:
    """Qiao et al. (2021), OSDI, equations 9 to 11: both logarithms' root mean squares, gamma from 1 to 10.

    Starts and bounds are wide, the best of several starts counts; the weak pull of gamma towards 1 and of the
    retrogressions towards 0 is the one of its implementation.
    """
    n, b, across = _columns(points)
    log_step = np.log([each.step_time_s.value for each in points])
    told = np.log([each.compute_s or np.nan for each in points])
    is_told = np.isfinite(told)

    def error(values: Floats) -> float:
        gradient_s, step_s = _adaptdl(values, n, b, across)
        of_gradient = np.sqrt(np.mean((np.log(gradient_s) - told)[is_told] ** 2)) if is_told.any() else 0.0
        of_step = np.sqrt(np.mean((np.log(step_s) - log_step) ** 2))
        exponentials = np.exp(values)
        pull = 1e-3 * (values[6] - 1) ** 2 + 1e-2 * float(
            (exponentials[3] / exponentials[2]) ** 2 + (exponentials[5] / exponentials[4]) ** 2
        )
        return float(of_gradient + of_step + pull)

    shortest = float(np.exp(log_step.min()))
    scales = np.log(np.array([shortest / 2, shortest / 2 / b.min()]))
    best = None
    for sync in (0.05, 0.5, 2.0):
        for gamma in (1.5, 4.0):
            sync_s = np.log([sync * shortest, 0.02 * sync * shortest] * 2)
            start = np.concatenate([scales, sync_s, [gamma]])
            bounds = [(None, None)] * 6 + [(1.0, 10.0)]
            found = minimize(error, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 400})
            best = found if best is None or found.fun < best.fun else best
    assert best is not None
    values = best.x
    return lambda asked: [float(each) for each in _adaptdl(values, *_columns(asked))[1]]


LAWS: dict[str, Callable[[Sequence[Measurement]], Answers]] = {
    "naive": naive,
    "Amdahl": amdahl,
    "USL": universal,
    "Ernest": ernest,
    "Ernest by nodes": ernest_by_nodes,
    "AdaptDL": adaptdl,
    "Extra-P": extra_p,
}


def _adaptdl(values: Floats, n: Floats, b: Floats, across: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    fixed_s, sample_s, far_s, far_each_s, local_s, local_each_s = np.exp(values[:6])
    gamma, beyond = values[6], np.maximum(n - 2, 1e-8)
    gradient_s = fixed_s + sample_s * b
    sync_s = np.where(across, far_s + far_each_s * beyond, local_s + local_each_s * beyond)
    sync_s = np.where(n > 1, sync_s, 1e-8)
    return gradient_s, (gradient_s**gamma + sync_s**gamma) ** (1 / gamma)


def _columns(asked: Sequence[Measurement] | Sequence[Question]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    n = np.array([each.shape.world_size for each in asked], dtype=np.float64)
    b = np.array([each.batch_size for each in asked], dtype=np.float64)
    return n, b, np.array([each.shape.nodes > 1 for each in asked])


def _of_universal(asked: Sequence[Measurement] | Sequence[Question]) -> Floats:
    n, _, _ = _columns(asked)
    return np.column_stack([np.ones_like(n), n - 1, n * (n - 1)])


def _of_ernest(asked: Sequence[Measurement] | Sequence[Question]) -> Floats:
    n, b, _ = _columns(asked)
    return np.column_stack([np.ones_like(n), b, np.log(n), n])


def _of_nodes(asked: Sequence[Measurement] | Sequence[Question]) -> Floats:
    n, b, _ = _columns(asked)
    nodes = np.array([each.shape.nodes for each in asked], dtype=np.float64)
    most = np.array([max(each.shape.workers) for each in asked], dtype=np.float64)
    return np.column_stack([np.ones_like(n), b, np.log2(nodes), np.log2(most)])


def _of_extra_p(asked: Sequence[Measurement] | Sequence[Question], exponents: tuple[float, int]) -> Floats:
    n, b, _ = _columns(asked)
    return np.column_stack([np.ones_like(n), b, n ** exponents[0] * np.log2(n) ** exponents[1]])


def _relative(matrix: Floats, points: Sequence[Measurement]) -> Floats:
    times_s = np.array([each.step_time_s.value for each in points])
    return np.asarray(nnls(matrix / times_s[:, None], np.ones(len(times_s)))[0], dtype=np.float64)
