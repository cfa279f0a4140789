"""Which setting to measure next: main effects on a logarithm, small interactions, expected improvement.

An Optuna sampler, and the model behind it.

The logarithm of a throughput is taken as a sum: a level, an effect of each knob's value, a smaller one of
each pair of values, and noise, all normal with mean 0. The batch is ordered, and batches near each other do
similarly (by the distance of their logarithms); the values of other knobs have nothing in common. That is a
Gaussian process whose covariance is a sum over knobs and pairs of them (Duvenaud, Nickisch and Rasmussen,
2011, "Additive Gaussian processes", NeurIPS 24). Its sizes are stated, not fitted: six trials cannot
determine them. What it finds, and what other methods find: benchmarks/search_methods.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from scipy.special import ndtr

from raybench.plan.space import Parameters, SearchSpace
from raybench.spec.knobs import KnobValue

# Standard deviations, all of natural logarithms.
LEVEL = 3.0  # of the machine's throughput, around the mean of what was measured
BATCH = 1.5  # of the effect of a batch: over a range of 64 times a throughput grows up to tenfold
BATCH_REACH = 3.0  # the correlation of two batches falls by e over a range of e to the power of this
KNOB = 0.2  # of the effect of another knob's value
PAIR = 0.05  # of what two values do together, in addition to what each does alone
NOISE = 0.03  # of one trial's estimate, drift from trial to trial included
GIVEN_UP = 2  # failures of a value that was never measured

MOST_LISTED = 4096  # settings; in a larger space any open one is suggested, at random

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """Settings in numbers, a row a setting: the batch as its logarithm, other values as numbers of them."""

    values: Array  # shape (settings, knobs)
    ordered: tuple[bool, ...]  # of each knob: the batch


def expected_improvement(measured: Points, logs: Array, others: Points) -> tuple[Array, Array]:
    """How much each of ``others`` is expected to exceed the best of ``measured``, and its expected logarithm.

    ``logs`` are the measured ones' logarithms, shape ``(measured,)``; the larger the better. Both results
    have shape ``(others,)``. The best is the largest expected logarithm among the measured settings, since
    the largest measured one is flattered by noise. Jones, Schonlau and Welch (1998), "Efficient global
    optimization of expensive black-box functions", J. Global Optimization 13, equation 15.
    """
    mean = float(logs.mean())
    prior = _covariance(measured, measured)
    root = np.linalg.cholesky(prior + NOISE**2 * np.eye(len(logs)))
    weights = np.linalg.solve(root, logs - mean)
    best = float((mean + np.linalg.solve(root, prior).T @ weights).max())
    shared = np.linalg.solve(root, _covariance(measured, others))
    expected: Array = mean + shared.T @ weights
    variance = prior[0, 0] - (shared**2).sum(axis=0)  # before it is measured all vary alike
    deviation = np.sqrt(np.maximum(variance, 1e-12))
    z = (expected - best) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    improvement: Array = (expected - best) * ndtr(z) + deviation * density
    return np.maximum(improvement, 0.0), expected


def _covariance(one: Points, other: Points) -> Array:
    """Shape ``(one, other)``."""
    ordered = np.array(one.ordered, bool)
    distance = np.abs(one.values[:, None] - other.values[None])  # shape (one, other, knobs)
    correlation = np.where(ordered, np.exp(-distance / BATCH_REACH), distance == 0)
    alone = (np.where(ordered, BATCH, KNOB) ** 2 * correlation).sum(axis=2)
    pairs = (correlation.sum(axis=2) ** 2 - (correlation**2).sum(axis=2)) / 2  # the products of any two
    total: Array = LEVEL**2 + alone + PAIR**2 * pairs
    return total


def chance_of_success(measured: Array, failed: Array, others: Array) -> Array:
    """How likely each of ``others`` is to be measured and not to fail, shape ``(others,)``.

    Rows are settings, columns knobs, as numbers of values. The least likely of a setting's values counts:
    (1 + measured with it) / (1 + measured and failed with it); 0 for a value that failed twice and was never
    measured. A failure leaves a value that was often measured nearly as likely as before.
    """
    chances: Array = np.ones(len(others))
    for column in range(others.shape[1]):
        for value in np.unique(failed[:, column]):
            good = np.count_nonzero(measured[:, column] == value)
            bad = np.count_nonzero(failed[:, column] == value)
            chance = (1 + good) / (1 + good + bad) if good or bad < GIVEN_UP else 0.0
            here = others[:, column] == value
            chances[here] = np.minimum(chances[here], chance)
    return chances


class MainEffectsSampler(BaseSampler):
    """The open setting with the largest expected improvement of the objective's logarithm.

    It brings at most one value that was never tried, so that what a value does is seen before it is
    combined. What failed makes its values less likely; what is open, ``is_open`` says. Nothing is kept
    between calls: equal trials and an equal seed give an equal suggestion, also after a resume.

    Of several objectives the weighted sum is taken, with new weights for each suggestion, so that
    every convex part of the front is approached (Knowles, 2006, "ParEGO", IEEE Trans. Evolutionary
    Computation 10, but with a plain sum, so that effects of single knobs stay such).
    """

    def __init__(self, space: SearchSpace, is_open: Callable[[Parameters], bool], seed: int) -> None:
        self._space, self._is_open, self._seed = space, is_open, seed

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All knobs together, from the first trial on."""
        return distributions(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Parameters:
        """The next setting; nothing where the trial's setting is given already."""
        if "fixed_params" in trial.system_attrs or not self._space.values:
            return {}
        tried = self._tried(study)
        random = np.random.default_rng([self._seed, len(tried)])
        if math.prod(map(len, self._space.values.values())) > MOST_LISTED:
            every = self._space.values.items()
            drawn = (
                {name: values[random.integers(len(values))] for name, values in every}
                for _ in range(MOST_LISTED)
            )
            return next(filter(self._is_open, itertools.chain(drawn, self._space.points())), {})
        signs = np.array([1.0 if each is StudyDirection.MAXIMIZE else -1.0 for each in study.directions])
        weights = signs * random.dirichlet(np.ones(len(signs)))  # one objective: its sign
        candidates = self._candidates([point for point, _ in tried])
        for place in self._order(candidates, tried, weights, random) if candidates else ():
            if self._is_open(candidates[place]):
                return candidates[place]
        return next(filter(self._is_open, self._space.points()), {})

    def _tried(self, study: Study) -> list[tuple[Parameters, Array | None]]:
        """Each setting that has ended once, with the logarithms of its objectives; None: it failed."""
        found: dict[tuple[Any, ...], tuple[Parameters, Array | None]] = {}
        for each in study.get_trials(deepcopy=False):
            if not each.state.is_finished() or set(each.params) != set(self._space.values):
                continue
            point: Parameters = {name: each.params[name] for name in self._space.values}
            complete = each.state is TrialState.COMPLETE
            logs = np.log(np.maximum(each.values, 1e-300)) if complete else None
            found.setdefault(tuple(point.values()), (point, logs))
        return list(found.values())

    def _candidates(self, tried: Sequence[Parameters]) -> list[Parameters]:
        """Those with at most one value that was never tried."""
        known = {tuple(point.values()) for point in tried}
        old = [{point[name] for point in tried} for name in self._space.values]
        return [
            point
            for point in self._space.points()
            if tuple(point.values()) not in known
            and sum(value not in values for value, values in zip(point.values(), old, strict=True)) <= 1
        ]

    def _order(
        self,
        candidates: Sequence[Parameters],
        tried: Sequence[tuple[Parameters, Array | None]],
        weights: Array,
        random: np.random.Generator,
    ) -> list[int]:
        """The places of the candidates, the most promising first; of equals any.

        The logarithms of all objectives count together, each times its weight; the larger the better.
        """
        others, ties = self._points(candidates), random.random(len(candidates))
        measured = self._points([point for point, logs in tried if logs is not None])
        failed = self._points([point for point, logs in tried if logs is None])
        improvement, expected = np.ones(len(ties)), np.zeros(len(ties))
        if len(measured.values):
            logs = np.array([logs @ weights for _, logs in tried if logs is not None])
            improvement, expected = expected_improvement(measured, logs, others)
        chance = chance_of_success(measured.values, failed.values, others.values)
        # equal values may differ in their last digits
        worth = (improvement * chance).round(12)
        return [int(place) for place in np.lexsort((ties, expected.round(9), worth, chance > 0))[::-1]]

    def _points(self, settings: Sequence[Parameters]) -> Points:
        rows = [
            [self._number(name, value) for name, value in self._space.as_measured(each).items()]
            for each in settings
        ]
        ordered = tuple(name == "batch_size" for name in self._space.values)
        return Points(np.array(rows).reshape(len(rows), len(ordered)), ordered)

    def _number(self, name: str, value: KnobValue) -> float:
        if name != "batch_size":
            return float(self._space.values[name].index(value))
        return math.log(value) if isinstance(value, int) else 0.0  # "max" where no batch fits

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The first value: every knob is sampled with the others, none alone."""
        return self._space.values[param_name][0]


def distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """The space as Optuna knows it: every knob a choice among its values."""
    return {name: CategoricalDistribution(list(values)) for name, values in space.values.items()}
