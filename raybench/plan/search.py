"""Optuna by ask and tell: the next suggestion, what came of it, a journal for optuna-dashboard."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import StudyDirection
from optuna.trial import TrialState

from raybench.analysis import choice
from raybench.analysis.objectives import MAXIMIZED, UNITS
from raybench.analysis.scaling import alongside
from raybench.analysis.summary import model_name, summarize
from raybench.plan.main_effects import MainEffectsSampler, distributions
from raybench.plan.space import Parameters, SearchSpace
from raybench.plan.trials import Plan, Suggestion
from raybench.records.record import TrialRecord

optuna.logging.set_verbosity(optuna.logging.WARNING)

MAX_REPEATS = 16  # of what is known already, before an unseen point of the grid is taken


class Search:
    """Which suggestion next, given what is known.

    The first ones are the default, then the default at each other batch size: efficiency against batch is
    what every scaling study is asked for. The others are the sampler's, which learns how fast each is beside
    the default in the same rounds. What was out of memory is reported to Optuna as pruned, and no larger
    batch of that kind is tried; what crashed or timed out as failed.
    """

    def __init__(self, plan: Plan, journal: Path | None = None) -> None:
        self._study = plan.study
        self._plan, self._space = plan, SearchSpace(plan)
        self._known: dict[tuple[Any, ...], TrialRecord] = {}
        self._asked: optuna.Trial | None = None  # of the suggestion that is measured now
        self._default: TrialRecord | None = None  # the trial whose speed the others are multiples of
        default = {name: values[0] for name, values in self._space.values.items()}
        batches = self._space.values.get("batch_size", ())[1:]
        self._first_row = [default, *({**default, "batch_size": batch} for batch in batches)]
        objectives = plan.study.search.objectives
        directions = [
            StudyDirection.MAXIMIZE if name in MAXIMIZED else StudyDirection.MINIMIZE for name in objectives
        ]
        self._optuna = optuna.create_study(sampler=self._sampler(), directions=directions)
        # a copy for optuna-dashboard: Optuna's own writes to it, some ten a trial, wait for the disk each
        self._journal = None if journal is None else journal_of(plan, directions, journal)

    def _sampler(self) -> BaseSampler:
        name, seed = self._study.search.sampler, self._study.seed
        samplers: dict[str, type[BaseSampler]] = {"tpe": TPESampler, "gp": GPSampler, "random": RandomSampler}
        if name in samplers:
            return samplers[name](seed=seed)  # type: ignore[call-arg]
        return MainEffectsSampler(self._space, self._is_open, seed)

    def ask(self) -> Suggestion | None:
        """The next suggestion that is not known and may fit; None when every other one is known."""
        attempts = 0
        while (unseen := next(filter(self._is_open, self._space.points()), None)) is not None:
            attempts += 1
            self._first_row = [each for each in self._first_row if self._is_open(each)]
            if self._first_row:
                self._optuna.enqueue_trial(self._first_row.pop(0))
            elif attempts > MAX_REPEATS:
                self._optuna.enqueue_trial(unseen)
            trial, values = self._optuna.ask(), self._space.values
            parameters = {name: trial.suggest_categorical(name, list(values[name])) for name in values}
            key = self._space.key(parameters)
            if key in self._known:
                self._tell(trial, self._known[key])
            elif not self._space.may_fit(parameters, self._known.values()):
                self._optuna.tell(trial, state=TrialState.PRUNED)
            else:
                self._asked = trial
                return self._space.suggestion(parameters)
        return None

    def tell(self, record: TrialRecord) -> None:
        """What became of the suggestion that was asked for last, or of one of an earlier run."""
        parameters = self._space.parameters(self._plan.suggestion_of(record))
        self._keep(record)
        if self._asked is not None:
            self._tell(self._asked, record)
        else:
            known = optuna.trial.create_trial(
                params=self._space.categories(parameters),
                distributions=distributions(self._space),
                user_attrs=attributes(record),
                **self._outcome(record),
            )
            self._optuna.add_trial(known)
        self._asked = None
        if self._journal is not None:  # in one write
            self._journal.add_trial(self._optuna.get_trials(deepcopy=False)[-1])

    def _keep(self, record: TrialRecord) -> None:
        """Know a trial; merge points of which it shows that their buckets are equal."""
        if self._default is None and choice.is_default(self._plan.study_in_numbers, record.config):
            self._default = record
        if self._space.buckets.learn(record):
            records, self._known = list(self._known.values()), {}
            for each in records:
                self._known.setdefault(self._key(each), each)
        self._known[self._key(record)] = record

    def _key(self, record: TrialRecord) -> tuple[Any, ...]:
        return self._space.key(self._space.parameters(self._plan.suggestion_of(record)))

    def _tell(self, trial: optuna.Trial, record: TrialRecord) -> None:
        for name, value in attributes(record).items():
            trial.set_user_attr(name, value)
        self._optuna.tell(trial, **self._outcome(record))

    def _outcome(self, record: TrialRecord) -> dict[str, Any]:
        """State and values of a trial; what was out of memory is pruned."""
        found = alongside(record, self._default) if record.steps else None
        values = choice.objective_values(self._study, record, found) if found else None
        if values is not None:
            return {"state": TrialState.COMPLETE, "values": [value.value for value in values]}
        return {"state": TrialState.PRUNED if record.state == "oom" else TrialState.FAIL}

    def _is_open(self, parameters: Parameters) -> bool:
        """Whether a combination is not known, and may fit."""
        is_new = self._space.key(parameters) not in self._known
        return is_new and self._space.may_fit(parameters, self._known.values())

    def restore(self, records: Iterable[TrialRecord]) -> None:
        """Tell Optuna what is known, in its order: the default's trial, and what an earlier run suggested."""
        for record in records:
            self.tell(record)


def journal_of(plan: Plan, directions: Sequence[StudyDirection], path: Path) -> optuna.Study:
    """A new journal in ``path``: the study by its name, its objectives with their units, what it is about.

    An existing one is replaced: it is made again from the records, which are the truth.
    """
    for leftover in (path, path.with_name(path.name + ".lock")):
        leftover.unlink(missing_ok=True)
    # a lock by open(O_EXCL): symbolic links are not to be had on every shared file system
    backend = JournalFileBackend(str(path), lock_obj=JournalFileOpenLock(str(path)))
    study = optuna.create_study(
        study_name=plan.study.name, storage=JournalStorage(backend), directions=list(directions)
    )
    with warnings.catch_warnings():  # experimental since 2023
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([_with_unit(name) for name in plan.study.search.objectives])
    about = {
        "model": model_name(plan.study.workload),
        "world_size": plan.target,
        "scaling": plan.study.scaling.mode,
        "device": plan.device,
    }
    for name, value in about.items():
        study.set_user_attr(name, value)
    return study


def attributes(record: TrialRecord) -> dict[str, Any]:
    """A trial's attributes in the journal: its columns of summary.csv, and why it has no speed."""
    row = summarize([record])[0].row() | {"reason": record.reason}
    return {name: value for name, value in row.items() if value is not None}


def _with_unit(objective: Any) -> str:
    name, unit = objective.replace("_", " "), UNITS[objective]
    return f"{name} ({unit})" if unit else name
