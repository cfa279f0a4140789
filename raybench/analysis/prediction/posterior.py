"""The model fitted to measured points: the most probable parameters, and how sure they are.

Maximum a posteriori by Gauss-Newton steps with Levenberg's damping, in logarithms, so that each point counts by
its relative error; Student's t with 4 degrees of freedom as iterated weights (Lange, Little, Taylor 1989,
"Robust statistical modeling using the t distribution"), so that an outlier counts little. The model never is the
truth: each batch's compute, each shape's communication and each number of nodes has an effect of its own, a
normal variable whose variance is learned with them (expectation maximisation, Dempster, Laird, Rubin 1977), as is
the noise of a repeat. The covariance is that of the linear approximation at the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.prediction.parameters import DEVIATIONS, MEANS
from raybench.analysis.prediction.places import Places
from raybench.analysis.prediction.points import MeasuredPoint
from raybench.analysis.prediction.step_model import Algorithm, Parts, Units, all_reduce_line, parts
from raybench.analysis.prediction.sweep import SweptLines

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

DEGREES = 4.0  # of Student's t
NOISE, NOISE_WEIGHT = 0.05, 10.0  # of a repeat: 3 to 8%; counts as so many residuals
COMPUTE_NOISE = 0.08  # of a compute that was told apart: on one rank, or on the slowest
EFFECTS = {"batch": 0.10, "shape": 0.10, "nodes": 0.10}  # standard deviation of a logarithm, at first
EFFECT_WEIGHT = 4.0  # what is believed of an effect's size counts as so many effects
ITERATIONS, ROUNDS, CONVERGED, STEP = 60, 6, 1e-4, 1e-5


@dataclass(frozen=True)
class Grouping:
    """Which effect a row has; -1 for one that was never measured."""

    names: dict[str, dict[object, int]]  # for each kind of effect, the index of each group

    @staticmethod
    def of(points: Sequence[MeasuredPoint]) -> Grouping:
        """The groups in which there are points."""
        names: dict[str, dict[object, int]] = {kind: {} for kind in EFFECTS}
        for point in points:
            for kind, key in keys(point.batch_size, point.shape.workers).items():
                if key is not None:
                    names[kind].setdefault(key, len(names[kind]))
        return Grouping(names)

    def columns(self, batches: Sequence[int], workers: Sequence[tuple[int, ...]]) -> dict[str, Indices]:
        """For each kind of effect, the group of each row."""
        rows = [keys(*each) for each in zip(batches, workers, strict=True)]
        return {
            kind: np.array([groups.get(row[kind], -1) for row in rows], dtype=np.intp)
            for kind, groups in self.names.items()
        }


def keys(batch_size: int, workers: tuple[int, ...]) -> dict[str, object]:
    """The group of each kind; None where there is no such effect, as of communication on one device."""
    several = sum(workers) > 1
    return {
        "batch": batch_size,
        "shape": tuple(sorted(workers)) if several else None,
        "nodes": len(workers) if len(workers) > 1 else None,
    }


@dataclass(frozen=True)
class Posterior:
    """The fitted model: parameters, effects, their covariance, and the sizes of noise and effects."""

    algorithm: Algorithm
    units: Units
    grouping: Grouping
    values: Floats  # parameters, then the effects of each kind
    covariance: Floats
    noise: float
    effects: dict[str, float]
    degrees: float = field(default=DEGREES)

    def parts(self, places: Places, groups: dict[str, Indices]) -> Parts:
        """The steps at ``places``, with the effects of their groups."""
        return _parts(self.values, places, self.units, self.algorithm, groups, self.grouping)

    def slopes(self, places: Places, groups: dict[str, Indices]) -> tuple[Parts, Floats, Floats]:
        """The steps, and the derivatives of their logarithm and of one device's by all values."""
        return _slopes(self.values, places, self.units, self.algorithm, groups, self.grouping)


def fitted(points: Sequence[MeasuredPoint], algorithm: Algorithm, swept: SweptLines | None) -> Posterior:
    """The posterior of one variant of the model."""
    problem = _Problem(points, algorithm, swept)
    values = problem.start()
    noise, effects = NOISE, dict(EFFECTS)
    for _ in range(ROUNDS):
        values, covariance = problem.optimum(values, noise, effects)
        before = np.array([noise, *effects.values()])
        noise, effects = problem.sizes(values, covariance, noise, effects)
        if np.abs(np.log(np.array([noise, *effects.values()]) / before)).max() < 0.02:
            break
    return Posterior(algorithm, problem.units, problem.grouping, values, covariance, noise, effects)


class _Problem:
    """The points as arrays, and the sum of squares that they make."""

    def __init__(self, points: Sequence[MeasuredPoint], algorithm: Algorithm, swept: SweptLines | None) -> None:
        self.algorithm, self.swept = algorithm, swept
        self.places, self.grouping = Places.of(points), Grouping.of(points)
        self.groups = self.grouping.columns(
            [each.batch_size for each in points], [each.shape.workers for each in points]
        )
        self.log_step = np.log([each.step_time_s for each in points])
        told = [each.compute_s or np.nan for each in points]
        self.told = np.isfinite(told) & (self.places.world_size > 1)
        self.log_compute = np.log(np.array(told)[self.told])
        self.log_error = np.array([each.log_error or 0.0 for each in points])
        self.units = Units(float(np.exp(self.log_step.min())), float(self.places.batch.min()))
        self.counts = {kind: len(groups) for kind, groups in self.grouping.names.items()}

    def start(self) -> Floats:
        return np.concatenate([MEANS, np.zeros(sum(self.counts.values()))])

    def prior(self, effects: dict[str, float]) -> tuple[Floats, Floats]:
        spread = [np.full(self.counts[kind], effects[kind]) for kind in self.counts]
        return self.start(), np.concatenate([DEVIATIONS, *spread])

    def optimum(self, values: Floats, noise: float, effects: dict[str, float]) -> tuple[Floats, Floats]:
        """The most probable values, and their covariance."""
        mean, deviation = self.prior(effects)
        damping = 1e-2
        residuals, slopes = self.system(values, noise)
        error = self.error(residuals, values, mean, deviation)
        for _ in range(ITERATIONS):
            weights = (DEGREES + 1) / (DEGREES + residuals**2)
            weighted = slopes * weights[:, None]
            information = weighted.T @ slopes + np.diag(deviation**-2)
            gradient = weighted.T @ residuals - (values - mean) / deviation**2
            step = np.linalg.solve(information + damping * np.diag(information.diagonal()), gradient)
            tried = values + np.clip(step, -1.0, 1.0)
            tried_residuals, tried_slopes = self.system(tried, noise)
            tried_error = self.error(tried_residuals, tried, mean, deviation)
            if tried_error > error:
                damping *= 8
                if damping > 1e8:
                    break
                continue
            gained, error = error - tried_error, tried_error
            values, residuals, slopes, damping = tried, tried_residuals, tried_slopes, damping / 4
            if gained < CONVERGED:
                break
        weights = (DEGREES + 1) / (DEGREES + residuals**2)
        information = (slopes * weights[:, None]).T @ slopes + np.diag(deviation**-2)
        return values, np.asarray(np.linalg.inv(information), dtype=np.float64)

    def error(self, residuals: Floats, values: Floats, mean: Floats, deviation: Floats) -> float:
        likelihood = (DEGREES + 1) * np.log1p(residuals**2 / DEGREES).sum()
        return float(likelihood + (((values - mean) / deviation) ** 2).sum()) / 2

    def system(self, values: Floats, noise: float) -> tuple[Floats, Floats]:
        """Residuals (measured less model, in standard deviations) and the model's derivatives, row by row."""
        found, slopes, compute_slopes = _slopes(
            values, self.places, self.units, self.algorithm, self.groups, self.grouping
        )
        scale = np.hypot(noise, self.log_error)
        compute = (found.log_one_device + found.log_compute)[self.told] / 2
        rows = [(self.log_step - found.log_step) / scale, (self.log_compute - compute) / COMPUTE_NOISE]
        matrix = [slopes / scale[:, None], compute_slopes[self.told] / COMPUTE_NOISE]
        if self.swept is not None:
            rows.append(self.swept.residuals(values, self.algorithm))
            matrix.append(self.swept.slopes(values, self.algorithm, len(values)))
        return np.concatenate(rows), np.vstack(matrix)

    def sizes(
        self, values: Floats, covariance: Floats, noise: float, effects: dict[str, float]
    ) -> tuple[float, dict[str, float]]:
        """Noise and sizes of effects that fit the values found."""
        residuals, slopes = self.system(values, noise)
        weights = (DEGREES + 1) / (DEGREES + residuals**2)
        rows = slice(0, len(self.log_step))
        unsure = ((slopes[rows] @ covariance) * slopes[rows]).sum(axis=1)
        squares = (weights[rows] * (residuals[rows] ** 2 + unsure)).sum() * noise**2
        found_noise = float(np.sqrt((NOISE_WEIGHT * NOISE**2 + squares) / (NOISE_WEIGHT + len(self.log_step))))
        second = values**2 + covariance.diagonal()
        found, first = {}, len(MEANS)
        for kind, count in self.counts.items():
            total = second[first : first + count].sum() + EFFECT_WEIGHT * EFFECTS[kind] ** 2
            found[kind] = float(np.sqrt(total / (count + EFFECT_WEIGHT)))
            first += count
        return found_noise, found


def _effects(values: Floats, groups: dict[str, Indices], grouping: Grouping) -> dict[str, Floats]:
    found, first = {}, len(MEANS)
    for kind, names in grouping.names.items():
        known = np.append(values[first : first + len(names)], 0.0)  # index -1: none
        found[kind] = known[groups[kind]]
        first += len(names)
    return found


def _parts(
    values: Floats,
    places: Places,
    units: Units,
    algorithm: Algorithm,
    groups: dict[str, Indices],
    grouping: Grouping,
) -> Parts:
    effects = _effects(values, groups, grouping)
    return parts(
        values[: len(MEANS)], places, units, algorithm, effects["batch"], effects["shape"] + effects["nodes"]
    )


def _slopes(
    values: Floats,
    places: Places,
    units: Units,
    algorithm: Algorithm,
    groups: dict[str, Indices],
    grouping: Grouping,
) -> tuple[Parts, Floats, Floats]:
    """The parts; derivatives of the step's logarithm and of the compute's by all values."""
    center = _parts(values, places, units, algorithm, groups, grouping)
    of_step, of_compute = np.zeros((len(places), len(values))), np.zeros((len(places), len(values)))
    for column in range(len(MEANS)):
        moved = values.copy()
        moved[column] += STEP
        other = _parts(moved, places, units, algorithm, groups, grouping)
        of_step[:, column] = (other.log_step - center.log_step) / STEP
        of_compute[:, column] = (
            other.log_one_device + other.log_compute - center.log_one_device - center.log_compute
        ) / (2 * STEP)
    first = len(MEANS)
    for kind, names in grouping.names.items():
        rows = np.flatnonzero(groups[kind] >= 0)
        columns = first + groups[kind][rows]
        of_step[rows, columns] = (center.by_compute if kind == "batch" else center.by_communication)[rows]
        if kind == "batch":
            of_compute[rows, columns] = 1.0
        first += len(names)
    return center, of_step, of_compute
