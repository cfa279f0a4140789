"""Optuna by ask and tell, with its own samplers; the only module that imports it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import StudyDirection
from optuna.trial import TrialState

from raybench.analysis import choice
from raybench.analysis.objectives import MAXIMIZED
from raybench.plan.trials import Plan, Suggestion
from raybench.records.record import TrialRecord
from raybench.spec.knobs import MAX, KnobValue, Setting, settled

optuna.logging.set_verbosity(optuna.logging.WARNING)

ENVIRONMENT_PREFIX = "environment."
FIRST_ROW_SHARE = 2 / 3  # of the suggestions, at most, change the default in one knob
STARTUP_TRIALS = 6  # asked at random before TPE models anything, the ones of the first row included
MAX_REPEATS = 16  # of what is known already, before an unseen point of the grid is taken
MAX_DRAWS = 1000  # at random for such a point, before the first one is taken


class Search:
    """Which suggestion next, given what is known.

    The first ones are the default, then the default at each other batch size (efficiency against batch is
    what every scaling study is asked for), then one other knob at a time, from which the sampler's own
    combinations learn most. What was out of memory is told as pruned,
    which the samplers rank below everything complete, and larger batches beside it are not tried; what
    crashed or timed out is told as failed, which they leave out.
    """

    def __init__(self, plan: Plan, journal: Path | None = None) -> None:
        self._plan, self._study_spec = plan, plan.study
        self._default = plan.default().setting
        self._space = self._spaces()
        self._known: dict[tuple[Any, ...], TrialRecord] = {}
        self._asked: dict[int, optuna.Trial] = {}
        self._random = random.Random(plan.study.seed)
        objectives = plan.study.search.objectives
        directions = [
            StudyDirection.MAXIMIZE if name in MAXIMIZED else StudyDirection.MINIMIZE for name in objectives
        ]
        self._optuna = optuna.create_study(sampler=self._sampler(len(objectives)), directions=directions)
        # a copy for whoever looks on: Optuna's own writes to it, some ten a trial, wait for the disk each
        self._journal = (
            None
            if journal is None
            else optuna.create_study(
                study_name=plan.study.name, storage=_storage(journal), directions=directions
            )
        )
        for parameters in self._first_row():
            self._optuna.enqueue_trial(parameters)

    def ask(self) -> Suggestion | None:
        """The next suggestion that is not known and may fit; None when every combination is."""
        for attempt in range(10_000):
            if next(self._unseen(), None) is None:
                return None
            if attempt and attempt % MAX_REPEATS == 0:
                self._optuna.enqueue_trial(self._any_unseen())
            trial = self._optuna.ask()
            parameters = {name: trial.suggest_categorical(name, list(c)) for name, c in self._space.items()}
            known = self._known.get(self._key(parameters))
            if known is not None:
                self._tell(trial, known)
                continue
            too_large = self._does_not_fit(parameters)
            if too_large is not None:
                trial.set_user_attr("state", "oom")
                trial.set_user_attr("reason", too_large)
                self._optuna.tell(trial, state=TrialState.PRUNED)
                self._write_down(trial.number)
                continue
            suggestion = self._suggestion(trial.number, parameters)
            self._asked[trial.number] = trial
            return suggestion
        return None

    def tell(self, suggestion: Suggestion, record: TrialRecord) -> None:
        """What became of a suggestion."""
        self._known[self._key(self._parameters(suggestion))] = record
        trial = self._asked.pop(suggestion.number, None)
        if trial is not None:
            self._tell(trial, record)

    def _tell(self, trial: optuna.Trial, record: TrialRecord) -> None:
        trial.set_user_attr("trial_id", record.trial_id)
        trial.set_user_attr("state", record.state)
        if record.reason:
            trial.set_user_attr("reason", record.reason)
        values = choice.objective_values(self._study_spec, record)
        if values is not None:
            self._optuna.tell(trial, values)
        else:
            self._optuna.tell(trial, state=TrialState.PRUNED if record.state == "oom" else TrialState.FAIL)
        self._write_down(trial.number)

    def _write_down(self, number: int) -> None:
        """A finished trial into the journal, in one write."""
        if self._journal is not None:
            self._journal.add_trial(self._optuna.get_trials(deepcopy=False)[number])

    def _sampler(self, num_objectives: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.TPESampler(
            seed=self._study_spec.seed, multivariate=True, n_startup_trials=STARTUP_TRIALS, group=False
        )

    def _spaces(self) -> dict[str, tuple[KnobValue, ...]]:
        explored = dict(self._study_spec.knobs.explored())
        if self._plan.target == 1:  # one device: what cannot matter there is one suggestion, not several
            explored = {k: v for k, v in explored.items() if k not in Setting.ONE_DEVICE_INDIFFERENT}
        elif "strategy" in explored:  # single has one device, and every curve measures that
            default = self._default.strategy
            others = [each for each in explored.pop("strategy") if each not in ("single", default)]
            if others:
                explored["strategy"] = (default, *others)
        for name, values in self._study_spec.environment.items():
            if len(values) > 1:
                explored[ENVIRONMENT_PREFIX + name] = values
        return explored

    def _first_row(self) -> list[dict[str, KnobValue]]:
        """The default, every other batch size, then the other knobs' values one at a time.

        The knobs with the fewest values first, and no more than leaves the sampler its share.
        """
        default = {name: values[0] for name, values in self._space.items()}
        knobs = sorted(self._space, key=lambda name: (name != "batch_size", len(self._space[name])))
        changed = [{**default, name: value} for name in knobs for value in self._space[name][1:]]
        batches = len(self._space.get("batch_size", (None,))) - 1
        share = int(FIRST_ROW_SHARE * self._study_spec.search.trials) - 1
        return [default, *changed[: max(batches, share)]]

    def _unseen(self) -> Iterator[dict[str, KnobValue]]:
        """The combinations that are not known and may fit. Lazily: a space may have a million."""
        for values in itertools.product(*self._space.values()):
            parameters = dict(zip(self._space, values, strict=True))
            if self._is_open(parameters):
                yield parameters

    def _any_unseen(self) -> dict[str, KnobValue]:
        """One of them, at random; the first where most are known. There must be one."""
        for _ in range(MAX_DRAWS):
            parameters = {name: self._random.choice(values) for name, values in self._space.items()}
            if self._is_open(parameters):
                return parameters
        return next(self._unseen())

    def _is_open(self, parameters: dict[str, KnobValue]) -> bool:
        return self._key(parameters) not in self._known and self._does_not_fit(parameters) is None

    def _does_not_fit(self, parameters: dict[str, Any]) -> str | None:
        """Why it does not: a trial was out of memory that wanted no more than this one, or no batch fits."""

        first = self._first_values()
        batch = self._batch(parameters)
        if batch is None:
            return "no batch fits in memory"
        for record in self._known.values():
            if record.state != "oom":
                continue
            found = record.config.setting
            alike = all(
                getattr(found, knob) == parameters.get(knob, first[knob]) for knob in Setting.MEMORY_KNOBS
            )
            if alike and batch >= found.batch_size:
                return f"at least as large as {record.trial_id}, which did not fit"
        return None

    def _batch(self, parameters: dict[str, Any]) -> int | None:
        """The batch that the parameters amount to; None: "max", where none fits."""
        listed = parameters.get("batch_size", self._study_spec.knobs.values("batch_size")[0])
        if listed != MAX:
            return int(listed)
        setting = self._setting({**parameters, "batch_size": MAX})
        return None if setting is None else setting.batch_size

    def _setting(self, parameters: dict[str, Any]) -> Setting | None:
        """The parameters' knobs and the first values of the others, a number in the place of "max"."""
        knobs = {k: v for k, v in parameters.items() if not k.startswith(ENVIRONMENT_PREFIX)}
        return settled({**self._first_values(), **knobs}, self._plan.largest)

    def _first_values(self) -> dict[str, KnobValue]:
        """The default's value of every knob; "max" is left as it is."""
        first = {name: self._study_spec.knobs.values(name)[0] for name in Setting.model_fields}
        return {**first, "strategy": self._default.strategy}

    def _suggestion(self, number: int, parameters: dict[str, Any]) -> Suggestion:
        variables = {
            k.removeprefix(ENVIRONMENT_PREFIX): v
            for k, v in parameters.items()
            if k.startswith(ENVIRONMENT_PREFIX)
        }
        setting = self._setting(parameters)
        assert setting is not None  # what does not fit is not suggested
        return Suggestion(number, setting, {**self._plan.environments()[0], **variables})

    def _parameters(self, suggestion: Suggestion) -> dict[str, KnobValue]:
        """The suggestion as a point of the space; knobs without effect at their first value."""
        setting = suggestion.setting
        without = setting.indifferent(self._plan.target)
        return {
            name: suggestion.environment[name.removeprefix(ENVIRONMENT_PREFIX)]
            if name.startswith(ENVIRONMENT_PREFIX)
            else self._space[name][0]
            if name in without
            else getattr(setting, name)
            for name in self._space
        }

    def _key(self, parameters: dict[str, Any]) -> tuple[Any, ...]:
        """The same for two points that are one trial: "max" is the number that it stands for."""
        fits = self._setting(parameters) is not None
        point = self._parameters(self._suggestion(0, parameters)) if fits else parameters
        return tuple(sorted((name, repr(value)) for name, value in point.items()))

    def restore(self, records: Iterable[TrialRecord]) -> None:
        """Tell Optuna what an earlier run found out, in its order."""
        for record in records:
            if record.request.kind != "steps" or record.request.role != "search":
                continue
            parameters = self._parameters(Suggestion.of(record))
            self._known[self._key(parameters)] = record
            self._optuna.add_trial(self._frozen(parameters, record))
            self._write_down(-1)

    def _categories(self, parameters: dict[str, KnobValue]) -> dict[str, KnobValue]:
        """As Optuna lists them: a batch that the study does not list was found for "max"."""
        return {
            name: value if name != "batch_size" or value in self._space[name] else MAX
            for name, value in parameters.items()
        }

    def _frozen(self, parameters: dict[str, KnobValue], record: TrialRecord) -> optuna.trial.FrozenTrial:
        values = choice.objective_values(self._study_spec, record)
        state = (
            TrialState.COMPLETE if values else TrialState.PRUNED if record.state == "oom" else TrialState.FAIL
        )
        return optuna.trial.create_trial(
            params=self._categories(parameters),
            distributions={
                name: CategoricalDistribution(list(values)) for name, values in self._space.items()
            },
            values=values,
            state=state,
            user_attrs={"trial_id": record.trial_id, "state": record.state, "reason": record.reason or ""},
        )


def _storage(journal: Path) -> JournalStorage:
    # rebuilt from the records, which are the truth
    for leftover in (journal, journal.with_name(journal.name + ".lock")):
        leftover.unlink(missing_ok=True)
    # a lock by open(O_EXCL): symbolic links are not to be had on every shared file system
    return JournalStorage(JournalFileBackend(str(journal), lock_obj=JournalFileOpenLock(str(journal))))
