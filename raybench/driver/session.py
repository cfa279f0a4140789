"""One run of a plan: the way from a trial to its record, and notes; a sweep of collectives."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from raybench.analysis.findings.case import Around
from raybench.analysis.scaling import Scaling
from raybench.driver.forecast import Forecast
from raybench.driver.groups import Groups
from raybench.driver.ledger import Ledger
from raybench.driver.time_budget import TimeBudget
from raybench.errors import AllFailError, NoRoomError
from raybench.launch import signals
from raybench.launch.runner import TrialRunner
from raybench.plan.notes import Note, NoteKind, Stage, not_reached
from raybench.plan.sweep_plan import SweepPlan
from raybench.plan.trials import Plan
from raybench.records.messages import Progress
from raybench.records.record import State, TrialRecord
from raybench.records.requests import Place, StudyRequest, TrialRequest
from raybench.records.store import ResultsDirectory
from raybench.spec.sweep import Sweep


class Watcher(Protocol):
    """What follows a run: ``commands.progress.StudyProgress``, or nothing.

    ``trial``: it begins; of one that finds no workers nothing more follows. ``scaling`` is there for a
    complete trial of steps. ``group``: the trial that has begun is to be served by a worker group of so many,
    which starts where it does not run yet (None), then has started in ``seconds`` (0: it ran already).
    """

    def stage(self, stage: Stage, number: int) -> None: ...
    def trial(self, request: TrialRequest, *, done: int, total: int | None, left_s: float | None) -> None: ...
    def progress(self, request: TrialRequest, progress: Progress) -> None: ...
    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None: ...
    def group(self, num_workers: int, seconds: float | None) -> None: ...


@dataclass
class Session:
    """One run of a plan: measures trials, keeps their records, collects notes stage by stage.

    The stages read and ask: ``ledger`` (the plan, what is known and what is open), ``forecast`` (which trial
    fits into the time), ``measure``, ``note``.
    """

    plan: InitVar[Plan]
    runner: TrialRunner
    store: InitVar[ResultsDirectory]
    watcher: Watcher
    budget: TimeBudget = field(default_factory=TimeBudget)
    retry: InitVar[frozenset[State]] = frozenset()  # trials that ended so are measured again
    journal: Path | None = None  # of the search, for optuna-dashboard
    verify: bool = False  # whether the changes that the diagnosis proposes are tested in the end
    around: Around = field(default_factory=Around)  # what the diagnosis knows in addition to the trials
    _stage: Stage = Stage.LARGEST_BATCH
    _said: list[Note] = field(default_factory=list)

    def __post_init__(self, plan: Plan, store: ResultsDirectory, retry: frozenset[State]) -> None:
        self.ledger = Ledger(plan, store, retry, self.around.environment)
        served = [record for record in self.ledger.records() if record.group]
        requests = (record.study_request for record in served)
        self.groups = Groups(self.runner, self.budget, plan, self.watcher.group, requests)
        self.forecast = Forecast(self.ledger, self.budget, self.groups, self.verify)
        # a runner counts its own groups: what is resumed goes on where the session before it ended
        self._groups_before = max((record.group for record in served), default=0)

    # --- what there is to say

    def enter(self, stage: Stage) -> None:
        """Begin a stage, or begin it again: what it said before does not count any more."""
        self._stage = stage
        self._said = [each for each in self._said if each.stage is not stage]

    def announce(self, number: int = 1) -> None:
        """Tell the watcher that the stage measures ``number`` of what it is about."""
        self.watcher.stage(self._stage, number)

    def note(self, kind: NoteKind, **fields: Any) -> None:
        """Say something of the stage."""
        self._said.append(Note(kind, self._stage, **fields))

    @property
    def notes(self) -> list[Note]:
        """What there is to say, each once, but for what was left out."""
        return list(dict.fromkeys(each for each in self._said if each.kind is not NoteKind.NOT_REACHED))

    @property
    def not_reached(self) -> list[Note]:
        """What was left out: for want of time, or of nodes."""
        counted = not_reached(self.ledger.plan, self.ledger.known(), self.ledger.winners())
        said = [each for each in self._said if each.kind is NoteKind.NOT_REACHED]
        return sorted([*said, *counted], key=lambda note: note.stage.value)

    # --- from a trial to its record

    def measure(self, request: StudyRequest, *, done: int, total: int | None) -> TrialRecord:
        """Measure an open trial; its record.

        A trial which the time budget has ended stays open: its record is not on disk. ``done`` of ``total``
        trials of the stage came before it. Raises ``Interrupted``, ``GroupLostError`` when no
        worker group starts, ``NoRoomError`` where none fits, ``RequestError`` for what cannot be placed or
        written, ``AllFailError`` where the default has crashed wherever it was tried.
        """
        request = self.ledger.without_failing_anchor(request)
        signals.check()
        left_s = self.forecast.left_s(self._stage, request, trials=total - done) if total else None
        self.watcher.trial(request, done=done, total=total, left_s=left_s)
        outcome, started_at, was_cut = self.groups.run(
            request, partial(self.watcher.progress, request), expected_s=self.forecast.cost_of(request)
        )
        if outcome.group:  # 0: no group served it
            outcome = replace(outcome, group=self._groups_before + outcome.group)
        record = outcome.to_record(request, study=self.ledger.study.name, started_at=started_at)
        if was_cut:
            return self._not_reached_in_time(record)
        self.ledger.add(record, outcome.step_times)
        if outcome.processes_s:
            self.budget.each_processes_s.append(outcome.processes_s)
        if outcome.files:
            self.ledger.store.add_traces(record.trial_id, outcome.files)
        if request.kind == "steps" and record.steps is not None:
            # without the start of its processes
            longest_s = self.ledger.study.measure.max_seconds
            self.budget.took(request, outcome.wall_time_s, record.steps, longest_s, record.group)
        self.watcher.trial_done(record, self.ledger.scaling(record))
        if (crash := self._default_crash()) is not None:
            self.note(NoteKind.ALL_FAIL, reason=crash.reason or "")
            raise AllFailError
        return record

    def _not_reached_in_time(self, record: TrialRecord) -> TrialRecord:
        """What is shown of a trial that the time budget has ended.

        No failure of its own and not on disk: a study that goes on asks it again.
        """
        reason = f"the time budget was spent: ended after {record.wall_time_s:.0f} s, --resume asks it again"
        shown = record.model_copy(update={"state": "timeout", "reason": reason})
        self.watcher.trial_done(shown, None)
        return shown

    def _default_crash(self) -> TrialRecord | None:
        """The default's first, where it has crashed wherever it was tried and nothing has completed."""
        if any(each.state == "complete" for each in self.ledger.records()):
            return None
        plan = self.ledger.plan
        curve = {request.trial_id for request in plan.curve(plan.default())}
        crashed = [each for each in self.ledger.known() if each.trial_id in curve and each.state == "crashed"]
        return crashed[0] if len(crashed) == len(curve) else None

    @contextmanager
    def leaving_out_what_has_no_room(self) -> Iterator[None]:
        """Inside, trials that do not fit on the nodes any more are left out."""
        try:
            yield
        except NoRoomError as lost:
            self.note(NoteKind.NO_ROOM, reason=str(lost))


# --- a sweep of collectives, which has no stages


def run_sweep(
    plan: SweepPlan, runner: TrialRunner, store: ResultsDirectory, watcher: Watcher, retry: Collection[State]
) -> list[tuple[Place, str]]:
    """Measure every place that is not known, or ended in a state to ``retry``.

    Returns which have no room, since nodes are gone, and why. Raises ``Interrupted``, ``RequestError`` for
    what cannot be placed or written, ``GroupLostError`` when no worker group starts.
    """
    groups = Groups(runner, TimeBudget(), plan, watcher.group)
    requests, known, lost = plan.requests, store.latest(), list[tuple[Place, str]]()
    still = [each for each in requests if each.trial_id not in known or known[each.trial_id].state in retry]
    for done, request in enumerate(still, len(requests) - len(still)):
        left_s = (len(requests) - done) * plan.sweep.measure.max_seconds
        watcher.trial(request, done=done, total=len(requests), left_s=left_s)
        signals.check()
        try:
            outcome, at, _ = groups.run(request, partial(watcher.progress, request))
        except NoRoomError as error:
            lost.append((request.config, str(error)))
            continue
        record = outcome.to_record(request, study=Sweep.name, started_at=at)
        store.append(record)
        watcher.trial_done(record, None)
    return lost
