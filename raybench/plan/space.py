"""The settings among which a search chooses: its parameters, and the suggestion of a point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from raybench.analysis import choice
from raybench.analysis.reference import known_buckets
from raybench.plan.trials import Plan, Suggestion, searched
from raybench.records.record import TrialRecord
from raybench.spec.knobs import MAX, KnobValue, Setting, setting_in_numbers

ENVIRONMENT_PREFIX = "environment."

Parameters = dict[str, KnobValue]  # a point of the space: knobs and prefixed variables with several values


class SearchSpace:
    """Every knob and variable with more than one value; the first of each list is the default's."""

    def __init__(self, plan: Plan, known: Iterable[TrialRecord] = ()) -> None:
        """``known``: trials of the study, which show what bucket sizes are equal."""
        self._plan, self._study = plan, plan.study
        self._default_strategy = plan.default().setting.strategy
        first = next(plan.study.knobs.combinations_of(()))
        self._first = {**first, "strategy": self._default_strategy}
        self.buckets = known_buckets(plan.study, known)
        self.values = self._explored()

    def _explored(self) -> dict[str, tuple[KnobValue, ...]]:
        explored = dict(self._study.knobs.explored())
        if self._plan.target == 1:  # one device: what cannot matter there is one suggestion, not several
            explored = {k: v for k, v in explored.items() if k not in Setting.ONE_DEVICE_INDIFFERENT}
        elif "strategy" in explored:  # single has one device, and every curve measures that
            default = self._default_strategy
            others = [each for each in explored.pop("strategy") if each not in ("single", default)]
            if others:
                explored["strategy"] = (default, *others)
        for name, values in self._study.environment.items():
            if len(values) > 1:
                explored[ENVIRONMENT_PREFIX + name] = values
        return explored

    def points(self) -> Iterator[Parameters]:
        """Every combination. Lazily: a space may have a million."""
        for values in itertools.product(*self.values.values()):
            yield dict(zip(self.values, values, strict=True))

    def suggestion(self, parameters: Parameters) -> Suggestion:
        """The suggestion of a point; it must be one that fits."""
        variables = {
            name.removeprefix(ENVIRONMENT_PREFIX): str(value)
            for name, value in parameters.items()
            if name.startswith(ENVIRONMENT_PREFIX)
        }
        setting = self._setting(parameters)
        assert setting is not None  # what does not fit is not suggested
        setting = self.buckets.standing(setting, self._plan.target)
        return Suggestion(setting, {**choice.default_environment(self._study), **variables})

    def parameters(self, suggestion: Suggestion) -> Parameters:
        """The suggestion as a point; knobs without effect at their first value.

        So with sizes of buckets that are the same for the model.
        """
        setting = self.buckets.standing(suggestion.setting, self._plan.target)
        without = setting.indifferent(self._plan.target)
        variables = {f"{ENVIRONMENT_PREFIX}{name}": value for name, value in suggestion.environment.items()}
        own = setting.model_dump() | variables
        return {name: values[0] if name in without else own[name] for name, values in self.values.items()}

    def categories(self, parameters: Parameters) -> Parameters:
        """The point in listed values only: a batch that the study does not list was found for "max"."""
        return {
            name: value if name != "batch_size" or value in self.values[name] else MAX
            for name, value in parameters.items()
        }

    def as_measured(self, parameters: Parameters) -> Parameters:
        """The same for two points that are one trial, in this order of knobs; itself where no batch fits.

        A number in the place of "max", knobs without effect at their first value.
        """
        fits = self._setting(parameters) is not None
        return self.parameters(self.suggestion(parameters)) if fits else parameters

    def key(self, parameters: Parameters) -> tuple[Any, ...]:
        """The same for two points that are one trial."""
        return tuple(sorted((name, repr(value)) for name, value in self.as_measured(parameters).items()))

    def may_fit(self, parameters: Parameters, known: Iterable[TrialRecord]) -> bool:
        """Whether a batch may fit: none of ``known`` wanted no more and was out of memory."""
        setting, target = self._setting(parameters), self._plan.target
        if setting is None:
            return False
        too_large = (record.config.setting for record in known if record.state == "oom")
        return not any(
            tried.memory_key(target) == setting.memory_key(target) and setting.batch_size >= tried.batch_size
            for tried in too_large
        )

    def _setting(self, parameters: Parameters) -> Setting | None:
        """The parameters' knobs and the first values of the others, a number in the place of "max"."""
        knobs = {k: v for k, v in parameters.items() if not k.startswith(ENVIRONMENT_PREFIX)}
        return setting_in_numbers({**self._first, **knobs}, self._plan.largest)


def num_open(plan: Plan, records: Sequence[TrialRecord], most: int) -> int:
    """Return how many combinations may fit and are none of the suggestions among ``records``: up to ``most``.

    Combinations that are one trial are one. So is "max", while it is not known what it stands for.
    """
    space, tried = SearchSpace(plan, records), searched(plan, records)
    if plan.study.knobs.has_max and plan.fits is None:
        return max(min(math.prod(map(len, space.values.values())) - len(tried), most), 0)
    known = {space.key(space.parameters(plan.suggestion_of(each))) for each in tried}
    found = set[object]()
    for point in space.points():
        if len(found) >= most:
            break
        if space.may_fit(point, tried):
            found |= {space.key(point)} - known
    return len(found)
