"""The model fitted to measured points.

Maximum a posteriori by Gauss-Newton steps with Levenberg's damping, in logarithms, so that each point
counts by its relative error; Student's t with 4 degrees of freedom as iterated weights (Lange, Little,
Taylor 1989, "Robust statistical modeling using the t distribution"), so that an outlier counts little. The
model never is the truth: each batch's compute, each shape's communication and each number of nodes has an
effect of its own, a normal variable whose size is learned with them (expectation maximisation, Dempster,
Laird, Rubin 1977), as is the noise of a repeat. The covariance is that of the linear approximation at the
optimum.

The points above half of the largest world size, and those above a quarter, are held out in turn; how well a
variant fits what it has seen says nothing of what it will say of more devices. Variants whose errors there do
not differ are all kept, and their disagreement widens the intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from raybench.analysis.simulate.model import (
    DEVIATIONS,
    MEANS,
    VARIANTS,
    Parts,
    Places,
    SweptLines,
    Units,
    Variant,
    parts,
)
from raybench.analysis.simulate.steps import MeasuredPoint, Question

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Kind = Literal["batch", "shape", "nodes"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # the first is of compute, the others are of communication
Asked = Sequence[MeasuredPoint] | Sequence[Question]


@dataclass(frozen=True)
class Groups:
    """Every group that has an effect, kind after kind: its place among all effects."""

    places: dict[tuple[Kind, object], int]

    @staticmethod
    def of(asked: Asked) -> Groups:
        """The groups of measured points, or of questions."""
        return Groups({}).with_those_of(asked)

    def with_those_of(self, asked: Asked) -> Groups:
        """The same groups in their places, and behind them those that are new."""
        places = dict(self.places)
        for each in asked:
            for group in _groups(each):
                if group is not None:
                    places.setdefault(group, len(places))
        return Groups(places)

    def columns(self, asked: Asked) -> Indices:
        """The effect of each kind that each row has, shape ``(rows, kinds)``; -1 where it has none."""
        rows = [[-1 if group is None else self.places[group] for group in _groups(each)] for each in asked]
        return np.array(rows, dtype=np.intp).reshape(len(rows), len(KINDS))

    def of_kind(self, kind: Kind) -> Indices:
        """The places of one kind's effects."""
        return np.array([place for group, place in self.places.items() if group[0] == kind], dtype=np.intp)

    def deviations(self, sizes: dict[Kind, float]) -> Floats:
        """The standard deviation of each effect, shape ``(groups,)``."""
        return np.array([sizes[kind] for kind, _ in self.places])

    def __len__(self) -> int:
        return len(self.places)


def _groups(each: MeasuredPoint | Question) -> list[tuple[Kind, object] | None]:
    """One for each kind; None where there is no such effect: one device has no communication."""
    workers = each.shape.workers
    return [
        ("batch", each.batch_size),
        ("shape", tuple(sorted(workers))) if sum(workers) > 1 else None,
        ("nodes", len(workers)) if len(workers) > 1 else None,
    ]


NUM_PARAMETERS = len(MEANS)
STEP = 1e-5  # of a parameter, for a derivative


@dataclass(frozen=True)
class Slopes:
    """The model at some rows, and its derivatives.

    A row depends on all parameters and on one effect of each kind: ``matrix`` puts these in their columns.
    """

    parts: Parts
    step: Floats  # of the step's logarithm by each parameter, shape (rows, parameters)
    one_device: Floats
    bare_compute: Floats
    columns: Indices  # of the effects, shape (rows, kinds); -1 for none

    def matrix(self, of_parameters: Floats, of_effects: Floats, num_effects: int) -> Floats:
        """Derivatives by all values, shape ``(rows, parameters + effects)``."""
        found = np.zeros((len(of_parameters), NUM_PARAMETERS + num_effects + 1))  # the last for those without
        found[:, :NUM_PARAMETERS] = of_parameters
        rows = np.arange(len(of_parameters))[:, None]
        found[rows, np.where(self.columns < 0, -1, NUM_PARAMETERS + self.columns)] = of_effects
        return found[:, :-1]

    @property
    def step_by_effects(self) -> Floats:
        """Derivatives of the step's logarithm by each kind of effect, shape ``(rows, kinds)``."""
        by_communication = 1 - self.parts.by_compute
        return np.column_stack([self.parts.by_compute, by_communication, by_communication])

    @property
    def compute_by_effects(self) -> Floats:
        """Derivatives of compute's logarithm, measured separately or on one device."""
        ones = np.ones(len(self.columns))
        return np.column_stack([ones, 0 * ones, 0 * ones])


def slopes(values: Floats, places: Places, units: Units, variant: Variant, columns: Indices) -> Slopes:
    """The model and its derivatives at ``values``: parameters, then effects."""
    effects = np.append(values[NUM_PARAMETERS:], 0.0)[columns]  # index -1: none
    moved = values[:NUM_PARAMETERS] + STEP * np.vstack([np.zeros(NUM_PARAMETERS), np.eye(NUM_PARAMETERS)])
    found = parts(moved, places, units, variant, effects[:, 0], effects[:, 1] + effects[:, 2])

    def derivative(of: Floats) -> Floats:
        return np.asarray((np.broadcast_to(of, (len(moved), len(places)))[1:] - of[0]).T / STEP)

    center = Parts(found.log_one_device[0], found.log_bare_compute[0], found.log_step[0], found.by_compute[0])
    return Slopes(
        center,
        derivative(found.log_step),
        derivative(found.log_one_device),
        derivative(found.log_bare_compute),
        columns,
    )


@dataclass(frozen=True)
class Posterior:
    """One variant of the model, fitted."""

    variant: Variant
    units: Units
    groups: Groups
    values: Floats  # parameters, then effects, shape (values,)
    covariance: Floats
    noise: float  # of a repeat: standard deviation of a logarithm
    sizes: dict[Kind, float]  # standard deviation of each kind of effect

    def with_effects_of(self, asked: Asked) -> Posterior:
        """The same, with effects for all groups of ``asked``: those never measured are 0, give or take."""
        groups = self.groups.with_those_of(asked)
        new = len(groups) - len(self.groups)
        if new == 0:
            return self
        total = len(self.values) + new
        covariance = np.zeros((total, total))
        covariance[:-new, :-new] = self.covariance
        known = np.arange(total - new, total)
        covariance[known, known] = groups.deviations(self.sizes)[-new:] ** 2
        return replace(
            self, groups=groups, values=np.append(self.values, np.zeros(new)), covariance=covariance
        )

    def slopes(self, asked: Asked) -> Slopes:
        """The model at these points or questions; each group must be known."""
        return slopes(self.values, Places.of(asked), self.units, self.variant, self.groups.columns(asked))


DEGREES = 4.0  # of Student's t
NOISE, NOISE_WEIGHT = 0.05, 10.0  # of a repeat: 3 to 8% are usual; counts as so many residuals
BARE_NOISE = 0.08  # of a compute that was measured separately: it may be one rank's, or the slowest's
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
        bare = np.array([each.compute_s or np.nan for each in points])
        self.has_bare = np.isfinite(bare) & (bare > 0) & (self.places.world_size > 1)
        self.log_bare = np.log(bare[self.has_bare])
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
        """Measured less model, in standard deviations: steps, bare computes, the sweep's lines."""
        rows = [
            (self.log_step - found.parts.log_step) / np.hypot(noise, self.log_error),
            (self.log_bare - found.parts.log_bare_compute[self.has_bare]) / BARE_NOISE,
        ]
        if self.swept is not None:
            rows.append(self.swept.residuals(values, self.variant))
        return np.concatenate(rows)

    def normal_equations(
        self, values: Floats, found: Slopes, residuals: Floats, noise: float
    ) -> tuple[Floats, Floats]:
        """The weighted products of the derivatives with themselves and with the residuals."""
        matrix = self.sparse(found.step, found.step_by_effects, found, np.hypot(noise, self.log_error))
        bare = self.sparse(found.bare_compute, found.compute_by_effects, found, BARE_NOISE)[self.has_bare]
        weights, total, pull = (
            _weights(residuals),
            np.zeros((len(values), len(values))),
            np.zeros(len(values)),
        )
        first = 0
        for each in (matrix, bare):
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


def _error(residuals: Floats, distance: Floats, precision: Floats) -> float:
    """Minus the logarithm of the probability, but for a constant."""
    likelihood = (DEGREES + 1) * np.log1p(residuals**2 / DEGREES).sum()
    return float(likelihood + (precision * distance**2).sum()) / 2


Points = Sequence[MeasuredPoint]
# world sizes, where the largest over 2, or over 4, is the largest that is fitted
FEWEST_FITTED = {2: 2, 4: 3}
FEWEST_UNUSUAL = 3  # fitted world sizes: through two of them any growth can be laid
AS_GOOD = 1.25  # times the least error, and the noise of it: as good as the best
# an unusual variant counts with its error times this: hops that take milliseconds are rare, and grow fast
HANDICAPS: dict[Variant, float] = {"shared": 1.25, "adaptdl": 1.25, "stepwise": 2.0}
USUAL: tuple[Variant, ...] = ("ring", "tree", "hierarchical")  # the others must be better, not just as good


def chosen(points: Points, swept: SweptLines | None) -> tuple[tuple[Variant, ...], float | None]:
    """The variants to average, and their mean absolute relative error; None if nothing can be held out."""
    found = (_cut(points, divisor, fewest, swept) for divisor, fewest in FEWEST_FITTED.items())
    cuts = [cut for cut in found if cut is not None]
    if not cuts:
        return USUAL, None
    curved = any(len({each.shape.world_size for each in fit_to}) >= FEWEST_UNUSUAL for fit_to, _ in cuts)
    errors = {
        variant: [_errors(*cut, variant, swept) for cut in cuts]
        for variant in (VARIANTS if curved else USUAL)
    }
    means = {
        variant: float(np.mean([np.abs(cut).mean() for cut in found])) for variant, found in errors.items()
    }
    kept = _as_good(
        means, swept is not None, NOISE / len({each.shape for _, held in cuts for each in held}) ** 0.5
    )
    joined = [np.mean([errors[variant][index] for variant in kept], axis=0) for index in range(len(cuts))]
    return kept, float(np.abs(np.expm1(np.concatenate(joined))).mean())


def _as_good(errors: Mapping[Variant, float], is_swept: bool, noise: float) -> tuple[Variant, ...]:
    """Those whose mean error may be the least; an unusual one is as good only if better."""
    handicaps = {**HANDICAPS, "stepwise": 1.0} if is_swept else HANDICAPS  # then latencies are no belief
    counted = {name: error * handicaps.get(name, 1.0) for name, error in errors.items()}
    limit = AS_GOOD * min(counted.values()) + noise
    return tuple(name for name, error in counted.items() if error <= limit)


def _cut(points: Points, divisor: int, fewest: int, swept: SweptLines | None) -> tuple[Points, Points] | None:
    """What is fitted and what is held out; None where one has too few world sizes or the other no point."""
    limit = max(each.shape.world_size for each in points) / divisor
    fit_to = [each for each in points if each.shape.world_size <= limit]
    if len({each.shape.world_size for each in fit_to}) < fewest:
        return None
    crossed = any(each.shape.nodes > 1 for each in fit_to) or (swept is not None and swept.crosses_nodes)
    held = [each for each in points if each.shape.world_size > limit and (crossed or each.shape.nodes == 1)]
    return (fit_to, held) if held else None


def _errors(fit_to: Points, held: Points, variant: Variant, swept: SweptLines | None) -> Floats:
    """The logarithm of predicted over measured, for each point that was held out."""
    found = fitted(fit_to, variant, swept, rounds=2).with_effects_of(held).slopes(held).parts.log_step
    return np.asarray(found - np.log([each.step_time_s for each in held]), dtype=np.float64)
