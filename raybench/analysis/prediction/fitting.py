"""The model fitted to measured points.

Maximum a posteriori by Gauss-Newton steps with Levenberg's damping, in logarithms, so that each point
counts by its relative error; Student's t with 4 degrees of freedom as iterated weights (Lange, Little,
Taylor 1989, "Robust statistical modeling using the t distribution"), so that an outlier counts little. The
model never is the truth: each batch's compute, each shape's communication and each number of nodes has an
effect of its own, a normal variable whose size is learned with them (expectation maximisation, Dempster,
Laird, Rubin 1977), as is the noise of a repeat. The covariance is that of the linear approximation at the
optimum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from raybench.analysis.prediction.effects import KINDS, Groups, Kind
from raybench.analysis.prediction.parameters import DEVIATIONS, MEANS
from raybench.analysis.prediction.places import Places
from raybench.analysis.prediction.points import MeasuredPoint
from raybench.analysis.prediction.posterior import NUM_PARAMETERS, Posterior, Slopes, slopes
from raybench.analysis.prediction.step_model import Units, Variant
from raybench.analysis.prediction.sweep import SweptLines

Floats = NDArray[np.float64]

DEGREES = 4.0  # of Student's t
NOISE, NOISE_WEIGHT = 0.05, 10.0  # of a repeat: 3 to 8% are usual; counts as so many residuals
TOLD_NOISE = 0.08  # of a compute that was told apart: it may be one rank's, or the slowest's
SIZES: dict[Kind, float] = {"batch": 0.10, "shape": 0.10, "nodes": 0.10}  # of effects: believed at first
SIZE_WEIGHT = 4.0  # what is believed of an effect's size counts as so many effects
ROUNDS, SETTLED = 5, 0.04  # of learning the sizes; relative
ITERATIONS, CONVERGED = 40, 1e-3  # of a Gauss-Newton search; in the logarithm of the probability
MOST_DAMPING = 1e8


def fitted(
    points: Sequence[MeasuredPoint], variant: Variant, swept: SweptLines | None = None, rounds: int = ROUNDS
) -> Posterior:
    """The posterior of one variant of the model; every step time and batch must be above 0.

    ``rounds`` is how often sizes of noise and effects are learned at most: few are enough for a prediction.
    """
    problem = _Problem(points, variant, swept)
    values, noise, sizes = problem.start(), NOISE, dict(SIZES)
    for _ in range(rounds):
        values, covariance = problem.optimum(values, noise, sizes)
        before = np.array([noise, *sizes.values()])
        noise, sizes = problem.learned(values, covariance, noise)
        if np.abs(np.log(np.array([noise, *sizes.values()]) / before)).max() < SETTLED:
            break
    return Posterior(variant, problem.units, problem.groups, values, covariance, noise, sizes)


class _Problem:
    """The points as columns, and how probable values of the model are."""

    def __init__(self, points: Sequence[MeasuredPoint], variant: Variant, swept: SweptLines | None) -> None:
        self.variant, self.swept = variant, swept
        self.places, self.groups = Places.of(points), Groups.of(points)
        self.columns = self.groups.columns(points)
        self.log_step = np.log([each.step_time_s for each in points])
        told = np.array([each.compute_s or np.nan for each in points])
        self.told = np.isfinite(told) & (told > 0) & (self.places.world_size > 1)
        self.log_told = np.log(told[self.told])
        self.log_error = np.array([each.log_error or 0.0 for each in points])
        self.units = Units(float(np.exp(self.log_step.min())), float(self.places.batch.min()))

    def start(self) -> Floats:
        return np.concatenate([MEANS, np.zeros(len(self.groups))])

    def optimum(self, values: Floats, noise: float, sizes: dict[Kind, float]) -> tuple[Floats, Floats]:
        """The most probable values, and their covariance."""
        mean = self.start()
        precision = np.concatenate([DEVIATIONS, self.groups.deviations(sizes)]) ** -2.0
        damping, found = 1e-2, self.model(values)
        residuals = self.residuals(values, found, noise)
        error = _error(residuals, values - mean, precision)
        for _ in range(ITERATIONS):
            information, pull = self.normal_equations(values, found, residuals, noise)
            information += np.diag(precision)
            pull -= precision * (values - mean)
            while True:
                damped = information + damping * np.diag(information.diagonal())
                tried = values + np.clip(np.linalg.solve(damped, pull), -1.0, 1.0)
                tried_found = self.model(tried)
                tried_residuals = self.residuals(tried, tried_found, noise)
                tried_error = _error(tried_residuals, tried - mean, precision)
                if tried_error <= error or damping > MOST_DAMPING:
                    break
                damping *= 8
            if tried_error > error:
                break
            gained = error - tried_error
            values, found, residuals, error = tried, tried_found, tried_residuals, tried_error
            damping /= 4
            if gained < CONVERGED:
                break
        information, _ = self.normal_equations(values, found, residuals, noise)
        return values, np.asarray(np.linalg.inv(information + np.diag(precision)), dtype=np.float64)

    def model(self, values: Floats) -> Slopes:
        return slopes(values, self.places, self.units, self.variant, self.columns)

    def residuals(self, values: Floats, found: Slopes, noise: float) -> Floats:
        """Measured less model, in standard deviations: steps, computes told apart, the sweep's lines."""
        rows = [
            (self.log_step - found.parts.log_step) / np.hypot(noise, self.log_error),
            (self.log_told - found.parts.log_told_compute[self.told]) / TOLD_NOISE,
        ]
        if self.swept is not None:
            rows.append(self.swept.residuals(values, self.variant))
        return np.concatenate(rows)

    def normal_equations(
        self, values: Floats, found: Slopes, residuals: Floats, noise: float
    ) -> tuple[Floats, Floats]:
        """The weighted products of the derivatives with themselves and with the residuals."""
        matrix = self.sparse(found.step, found.step_by_effects, found, np.hypot(noise, self.log_error))
        told = self.sparse(found.told_compute, found.compute_by_effects, found, TOLD_NOISE)[self.told]
        weights, total, pull = (
            _weights(residuals),
            np.zeros((len(values), len(values))),
            np.zeros(len(values)),
        )
        first = 0
        for each in (matrix, told):
            rows = slice(first, first + each.shape[0])
            first += each.shape[0]
            weighted = each.T.multiply(weights[rows]).tocsr()
            total += (weighted @ each).toarray()
            pull += weighted @ residuals[rows]
        if self.swept is not None:
            derivatives = self.swept.slopes(values, self.variant, len(values))
            total += (derivatives * weights[first:, None]).T @ derivatives
            pull += derivatives.T @ (weights * residuals)[first:]
        return total, pull

    def sparse(
        self, of_parameters: Floats, of_effects: Floats, found: Slopes, scale: Floats | float
    ) -> csr_array:
        rows, kinds = found.columns.shape
        data = np.hstack([of_parameters, np.where(found.columns < 0, 0.0, of_effects)])
        data /= np.broadcast_to(scale, (rows,))[:, None]
        effects = NUM_PARAMETERS + np.maximum(found.columns, 0)
        where = np.hstack([np.broadcast_to(np.arange(NUM_PARAMETERS), (rows, NUM_PARAMETERS)), effects])
        starts = np.arange(0, data.size + 1, NUM_PARAMETERS + kinds)
        shape = (rows, NUM_PARAMETERS + len(self.groups))
        return csr_array((data.ravel(), where.ravel(), starts), shape=shape)

    def learned(self, values: Floats, covariance: Floats, noise: float) -> tuple[float, dict[Kind, float]]:
        """Noise and sizes of effects that go with the values found."""
        found, count = self.model(values), len(self.log_step)
        residuals = self.residuals(values, found, noise)[:count]
        scale = np.hypot(noise, self.log_error)
        matrix = found.matrix(found.step, found.step_by_effects, len(self.groups)) / scale[:, None]
        unsure = ((matrix @ covariance) * matrix).sum(axis=1)
        squares = float((_weights(residuals) * (residuals**2 + unsure)).sum()) * noise**2
        second = (values**2 + covariance.diagonal())[NUM_PARAMETERS:]
        sizes = {}
        for kind in KINDS:
            own = second[self.groups.of_kind(kind)]
            total = float(own.sum()) + SIZE_WEIGHT * SIZES[kind] ** 2
            sizes[kind] = float(np.sqrt(total / (len(own) + SIZE_WEIGHT)))
        return float(np.sqrt((NOISE_WEIGHT * NOISE**2 + squares) / (NOISE_WEIGHT + count))), sizes


def _weights(residuals: Floats) -> Floats:
    return np.asarray((DEGREES + 1) / (DEGREES + residuals**2), dtype=np.float64)


def _error(residuals: Floats, apart: Floats, precision: Floats) -> float:
    """Minus the logarithm of the probability, but for a constant."""
    likelihood = (DEGREES + 1) * np.log1p(residuals**2 / DEGREES).sum()
    return float(likelihood + (precision * apart**2).sum()) / 2
