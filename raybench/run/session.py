"""What the stages of a run share: the plan, and the way from a trial to its record on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from raybench.analysis import choice
from raybench.analysis.estimates.efficiency import Scaling, scaling
from raybench.analysis.labels import trial_words
from raybench.errors import GroupLostError
from raybench.launch import signals
from raybench.launch.runner import TrialRunner
from raybench.plan.budget import Budget
from raybench.plan.trials import Plan, Trial
from raybench.records.messages import BlockStepTimes, Outcome, Progress, RankFile
from raybench.records.record import State, TrialRecord
from raybench.records.requests import StepsRequest, StepsRole, TrainingRequest, TrialRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import Study

UNKNOWN_BEST = 0.5  # of the default's curve, for that of a better setting that is not found yet
RESERVED = 0.85  # of what the parts after the search would take at their full length
MAX_LOST_STARTS = 3  # groups in a row that do not start, before the study gives up


class Store(Protocol):
    """Where records go: ``records.store.ResultsDirectory``, or a list in tests."""

    def append(self, record: TrialRecord, step_times: Sequence[BlockStepTimes] = ()) -> None:
        """Keep one record and its step times."""
        ...

    def add_traces(self, trial_id: str, files: Sequence[RankFile]) -> None:
        """Keep what the ranks of a trial made for people to open."""
        ...

    def latest(self) -> dict[str, TrialRecord]:
        """The record that counts for each trial id."""
        ...


class Watcher(Protocol):
    """Who is told what goes on: ``commands.display.Display``, or nobody.

    ``scaling`` is there for a complete trial of steps.
    """

    def stage(self, text: str) -> None: ...  # noqa: D102
    def trial(  # noqa: D102
        self, request: TrialRequest, *, done: int, total: int | None, left_s: float | None
    ) -> None: ...
    def progress(self, progress: Progress) -> None: ...  # noqa: D102
    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None: ...  # noqa: D102
    def best(self, record: TrialRecord, scaling: Scaling) -> None: ...  # noqa: D102


@dataclass
class Session:
    """One run of a plan."""

    plan: Plan
    runner: TrialRunner
    store: Store
    watcher: Watcher
    budget: Budget = field(default_factory=Budget)
    retry: frozenset[State] = frozenset()  # trials that ended so are measured again
    journal: Path | None = None  # of the search, for whoever looks on
    # the best so far, but for the default: what will be confirmed; None: nothing is known of it
    best: tuple[Setting, ...] | None = None
    not_reached: list[str] = field(default_factory=list)  # what the time budget left out, in words
    notes: list[str] = field(default_factory=list)
    _lost_starts: int = 0
    _start_of: dict[int, int | None] = field(default_factory=dict)  # what each worker group serves, by number
    _retried: set[str] = field(default_factory=set)

    @property
    def study(self) -> Study:
        """The study, with what is known in the place of "max"."""
        return self.plan.study_in_numbers

    def records(self) -> list[TrialRecord]:
        """The record that counts of each trial, in the order of their first attempts."""
        return list(self.store.latest().values())

    def is_open(self, request: TrialRequest) -> bool:
        """Whether the trial is to be measured: it is not known, or ended in a state to try again."""
        known = self.store.latest().get(request.trial_id)
        return known is None or (known.state in self.retry and known.trial_id not in self._retried)

    def note_without_profile(self, requests: Iterable[TrialRequest]) -> None:
        """Say which of ``requests`` were measured before a profile was asked for."""
        for request in requests:
            if request.kind != "steps" or not request.measure.profile or self.is_open(request):
                continue
            steps = self.store.latest()[request.trial_id].steps
            if steps is not None and not steps.profile and "profile" not in steps.missing:
                self.notes.append(
                    f"no profile of trial {request.trial_id} ({trial_words(self.study, request)}): it was "
                    "measured before one was asked for, and nothing is measured twice"
                )

    def measure(self, trial: Trial, *, done: int, total: int | None) -> TrialRecord:
        """The trial's record, from the disk where it is known already.

        ``done`` of ``total`` trials of the stage came before it. Raises ``Interrupted``, ``GroupLostError``
        when no worker group starts, ``RequestError`` for what cannot be placed or written.
        """
        request = trial.request
        if not self.is_open(request):
            return self.store.latest()[request.trial_id]
        signals.check()
        self._retried.add(request.trial_id)
        left_s = self.expected_s(request, trials=total - done) if total else None
        self.watcher.trial(request, done=done, total=total, left_s=left_s)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        outcome = self._outcome(request)
        record = outcome.to_record(
            request, study=self.plan.study.name, suggestion=trial.suggestion, started_at=started
        )
        self.store.append(record, outcome.step_times)
        if outcome.files:
            self.store.add_traces(record.trial_id, outcome.files)
        if request.kind == "steps" and record.steps is not None:
            # without the start of a worker group, and as if its rounds had not been cut short
            cut_s = self.plan.study.measure.max_seconds - request.measure.max_seconds
            was_cut = record.steps.stopped_by == "max_seconds"
            self.budget.took(request, outcome.wall_time_s + (cut_s if was_cut else 0.0))
        self.watcher.trial_done(record, scaling(record, self.records()) if record.steps else None)
        return record

    def _outcome(self, request: TrialRequest) -> Outcome:
        asked = [request.config.setting]
        if request.kind == "steps" and request.versus is not None:
            asked.append(request.versus)
        fault = next(filter(None, (setting.fault(self.plan.device) for setting in asked)), None)
        if fault is not None:
            return Outcome("invalid", 0.0, fault)
        while True:
            try:
                self._start_group(request)
                outcome = self.runner.run(request, self.watcher.progress)
            except GroupLostError:
                self._lost_starts += 1
                if self._lost_starts >= MAX_LOST_STARTS:
                    raise
                continue
            self._lost_starts = 0
            return outcome

    def _start_group(self, request: TrialRequest) -> None:
        """A worker group for ``request``; of the curve one group serves one start only."""
        size, environment = self.plan.group_size, request.config.environment
        began_s = self.budget.now_s
        number = self.runner.start(size, environment).number
        is_new = number not in self._start_of
        served, asked = self._start_of.setdefault(number, None), _start_asked(request)
        if served is not None and asked is not None and served != asked:
            number, is_new = self.runner.start(size, environment, anew=True).number, True
        if is_new:
            self.budget.started(self.budget.now_s - began_s)
        if asked is not None:
            self._start_of[number] = asked

    def start_cost_s(self, request: TrialRequest) -> float:
        """Expected seconds until a worker group is there that may serve ``request``, of those started yet."""
        served = next(reversed(self._start_of.values()), None)
        asked = _start_asked(request)
        return self.budget.start_s if served is not None and asked not in (None, served) else 0.0

    def cost_s(self, role: StepsRole, world_size: int, *settings: Setting) -> float:
        """Expected seconds of a trial of steps; ``settings``: what it measures, as far as that is known."""
        return self.budget.cost(role, world_size, self.plan.study.measure.max_seconds, settings)

    def trial_cost_s(self, request: StepsRequest) -> float:
        """Expected seconds of this one."""
        return self.cost_s(request.role, request.config.world_size, *request.settings)

    def training_cost_s(self, request: TrainingRequest) -> float:
        """Expected seconds of a training trial; 0 if unknown."""
        return self.budget.training_cost(request, self.records())

    def training_reserve_s(self) -> float:
        """Seconds to keep back for training while steps are measured: what it needs, half of what is left.

        More would leave nothing measured where an epoch alone takes longer than the budget.
        """
        left_s = self.budget.left_s
        if left_s is None:
            return 0.0
        needed_s = sum(self.training_cost_s(each) for each in self.plan.training() if self.is_open(each))
        return min(needed_s, left_s / 2)

    def search_reserve_s(self) -> float:
        """Seconds to keep back for what comes after the search: the curves and the confirmation.

        Of the default and of one other setting at least, as a better one may still be found: it is faster. As
        much as they need with somewhat shorter rounds: what is left in the end is divided among them.
        """
        starts, default = self.plan.study.measure.starts, self._default()
        curves_s = self._curve_s(*default) + sum(self._curve_s(each) for each in self.best or ())
        confirmation_s = self.confirmation_cost_s()
        if not self.best:
            curves_s += UNKNOWN_BEST * self._curve_s(*default)
            confirmation_s = self.cost_s("confirmation", self.plan.target, *default)
        return RESERVED * (curves_s + confirmation_s) + (starts - 1) * self.budget.start_s

    def _curve_s(self, *settings: Setting) -> float:
        """Expected seconds of the trials of one curve."""
        sizes, starts = self.plan.curve_sizes, self.plan.study.measure.starts
        return starts * sum(self.cost_s("scaling", size, *settings) for size in sizes)

    def confirmation_cost_s(self) -> float:
        """Expected seconds of the confirmations: none where the default is the best so far."""
        target, default = self.plan.target, self._default()
        if self.best is None:
            return self.cost_s("confirmation", target)
        return sum(self.cost_s("confirmation", target, each, *default) for each in self.best)

    def _default(self) -> tuple[Setting, ...]:
        """The default's setting; none while what "max" stands for is not known."""
        is_unknown = self.plan.study.knobs.has_max and not self.plan.fits
        return () if is_unknown else (self.plan.default().setting,)

    def expected_s(self, request: TrialRequest, trials: int) -> float | None:
        """Seconds until so many trials like ``request`` are done, and what follows them; None: not known."""
        if request.kind == "training":
            return trials * self.training_cost_s(request) or None
        if not self.budget.knows:
            return None
        if request.kind == "steps":
            left_s = trials * self.trial_cost_s(request)
        else:
            left_s = trials * self.cost_s(request.role, request.config.world_size)
        if request.role == "search":
            left_s += self.search_reserve_s()
        elif request.role == "scaling":
            left_s += (self.plan.study.measure.starts - 1 - request.start) * self.budget.start_s
        return left_s if self.budget.left_s is None else min(left_s, self.budget.left_s)


def _start_asked(request: TrialRequest) -> int | None:
    """In which start of the workers a trial of the curve is to be; None: any serves."""
    return request.start if request.kind == "steps" and request.role == "scaling" else None


def winners(session: Session) -> list[TrialRecord]:
    """The trials of the best suggestion, or of the Pareto front for several objectives."""
    chosen = choice.choose(session.study, session.records(), session.plan.target)
    return [candidate.record for candidate in chosen]
