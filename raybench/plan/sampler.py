"""Optuna's sampler over the settings of a search: the model of main effects chooses the next one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from raybench.plan.main_effects import Array, Points, chance_of_success, expected_improvement
from raybench.plan.space import Parameters, SearchSpace
from raybench.spec.knobs import KnobValue

MOST_LISTED = 4096  # settings among which every one is looked at
NUM_DRAWN = 1024  # at random from a larger space
NUM_NEAR = 4  # of the best so far, whose neighbours in one knob are looked at in a larger space


class MainEffectsSampler(BaseSampler):
    """The open setting with the largest expected improvement of the objective's logarithm.

    It brings at most one value that was never tried, so that what a value does is seen before it is
    combined. What failed makes its values less likely; what is open, ``is_open`` says. Nothing is kept
    between calls: equal trials and an equal seed give an equal suggestion, also after a resume.

    Of several objectives the weighted sum is taken, with weights drawn anew for each suggestion, so that
    every convex part of the front is approached (Knowles, 2006, "ParEGO", IEEE Trans. Evolutionary
    Computation 10, but with a plain sum, so that effects of single knobs stay such).
    """

    def __init__(
        self,
        space: SearchSpace,
        is_open: Callable[[Parameters], bool],
        open_: Callable[[], Iterator[Parameters]],
        seed: int,
    ) -> None:
        """``open_``: every setting of which ``is_open``, lazily."""
        self._space, self._is_open, self._open, self._seed = space, is_open, open_, seed

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All knobs together, from the first trial on."""
        return dict(distributions(self._space))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Parameters:
        """The next setting; nothing where the trial's setting is given already."""
        if "fixed_params" in trial.system_attrs or not self._space.values:
            return {}
        known = _Known(self._space, study.get_trials(deepcopy=False))
        random = np.random.default_rng([self._seed, len(known.tried)])
        signs = np.array([1.0 if each is StudyDirection.MAXIMIZE else -1.0 for each in study.directions])
        known.weigh(signs * random.dirichlet(np.ones(len(signs))))  # one objective: its sign
        candidates = self._candidates(known, random)
        for place in known.order(candidates, random) if candidates else ():
            if self._is_open(candidates[place]):
                return candidates[place]
        return next(self._open(), {})

    def _candidates(self, known: _Known, random: np.random.Generator) -> list[Parameters]:
        """Those with at most one value that was never tried; from a larger space some of them."""
        values = self._space.values
        if math.prod(map(len, values.values())) <= MOST_LISTED:
            listed: Iterator[Parameters] = self._space.points()
        else:
            listed = itertools.chain(known.neighbours(), known.drawn(random))
        tried = {tuple(point.values()) for point in known.tried}
        found = {tuple(point.values()): point for point in listed if known.num_new(point) <= 1}
        return [point for key, point in found.items() if key not in tried]

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The first value: every knob is sampled with the others, none by itself."""
        assert isinstance(param_distribution, CategoricalDistribution)
        return param_distribution.choices[0]


class _Known:
    """What finished trials say, each setting once."""

    def __init__(self, space: SearchSpace, trials: Sequence[FrozenTrial]) -> None:
        self._space = space
        finished: dict[tuple[Any, ...], tuple[Parameters, list[float] | None]] = {}
        for each in trials:
            if not each.state.is_finished() or set(each.params) != set(space.values):
                continue
            point: Parameters = {name: each.params[name] for name in space.values}
            complete = each.state is TrialState.COMPLETE
            logs = [math.log(max(value, 1e-300)) for value in each.values] if complete else None
            finished.setdefault(tuple(point.values()), (point, logs))
        self.tried = [point for point, _ in finished.values()]
        measured = [(point, logs) for point, logs in finished.values() if logs is not None]
        self._failed = [point for point, logs in finished.values() if logs is None]
        self._measured = [point for point, _ in measured]
        self._all_logs: Array = np.array([logs for _, logs in measured])  # a row a setting
        self._logs: Array = np.zeros(len(measured))
        self._values = {name: {point[name] for point in self.tried} for name in space.values}

    def weigh(self, weights: Array) -> None:
        """Take the logarithms of all objectives together, each times its weight; the larger the better."""
        if self._measured:
            self._logs = self._all_logs @ weights

    def num_new(self, point: Parameters) -> int:
        """How many of its values were never tried."""
        return sum(value not in self._values[name] for name, value in point.items())

    def neighbours(self) -> Iterator[Parameters]:
        """Of the best so far: what differs in one knob."""
        for place in np.argsort(-self._logs, kind="stable")[:NUM_NEAR]:
            best = self._measured[place]
            for name, values in self._space.values.items():
                for value in values:
                    yield {**best, name: value}

    def drawn(self, random: np.random.Generator) -> Iterator[Parameters]:
        """Combinations of values that were tried."""
        tried = {
            name: [value for value in values if value in self._values[name]] or list(values)
            for name, values in self._space.values.items()
        }
        for _ in range(NUM_DRAWN):
            yield {name: values[random.integers(len(values))] for name, values in tried.items()}

    def order(self, candidates: Sequence[Parameters], random: np.random.Generator) -> list[int]:
        """The places of the candidates, the most promising first; of equals any."""
        others = self._points(candidates)
        ties = random.random(len(candidates))
        if not self._measured:
            improvement, expected = np.ones(len(ties)), np.zeros(len(ties))
        else:
            improvement, expected = expected_improvement(self._points(self._measured), self._logs, others)
        tried, failed = self._points(self._measured).values, self._points(self._failed).values
        chance = chance_of_success(tried, failed, others.values)
        # equal values may differ in their last digits
        worth = (improvement * chance).round(12)
        return [int(place) for place in np.lexsort((ties, expected.round(9), worth, chance > 0))[::-1]]

    def _points(self, settings: Sequence[Parameters]) -> Points:
        rows = [
            [self._number(name, value) for name, value in (self._space.as_measured(each) or each).items()]
            for each in settings
        ]
        ordered = tuple(name == "batch_size" for name in self._space.values)
        return Points(np.array(rows).reshape(len(rows), len(ordered)), ordered)

    def _number(self, name: str, value: KnobValue) -> float:
        if name != "batch_size":
            return float(self._space.values[name].index(value))
        return math.log(value) if isinstance(value, int) else 0.0  # "max" where no batch fits


def distributions(space: SearchSpace) -> dict[str, CategoricalDistribution]:
    """The space as Optuna knows it: every knob a choice among its values."""
    return {name: CategoricalDistribution(list(values)) for name, values in space.values.items()}
