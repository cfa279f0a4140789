"""One run of a plan: what is known and what is open, the way from a trial to its record, and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from raybench.analysis.findings.case import Around
from raybench.analysis.largest_batch import largest_fits_of
from raybench.analysis.reference import known_buckets
from raybench.analysis.resolve import resolve
from raybench.analysis.scaling import Scaling, scaling
from raybench.driver.in_flight import InFlight
from raybench.driver.time_budget import Forecast, TimeBudget
from raybench.errors import AllFailError, NoRoomError
from raybench.launch import signals
from raybench.launch.runner import TrialRunner
from raybench.plan.notes import Note, NoteKind, Stage, not_reached
from raybench.plan.trials import Plan, Trial, searched
from raybench.records.messages import BlockStepTimes, Progress, RankFile
from raybench.records.record import State, TrialRecord
from raybench.records.requests import COMPARED_ROLES, StudyRequest, TrialRequest
from raybench.spec.study import Study


class Store(Protocol):
    """Where records go: ``records.store.ResultsDirectory``, or a list in tests."""

    def append(self, record: TrialRecord, step_times: Sequence[BlockStepTimes] = ()) -> None: ...
    def add_traces(self, trial_id: str, files: Sequence[RankFile]) -> None: ...
    def latest(self) -> dict[str, TrialRecord]: ...  # the record that counts for each trial id


@dataclass
class Ledger:
    """The plan and the records of a study, those of earlier runs among them."""

    plan: Plan  # what "max" stands for is in it once that is found
    store: Store
    retry: frozenset[State] = frozenset()  # trials that ended so are measured again, once
    cut: set[str] = field(default_factory=set)  # ids of trials that the time budget ended
    _begun: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._buckets = known_buckets(self.plan.study, self.store.latest().values())

    @property
    def study(self) -> Study:
        """The study, with what is known in the place of "max"."""
        return self.plan.study_in_numbers

    def records(self) -> list[TrialRecord]:
        """The record that counts of each trial, in the order of their first attempts."""
        return list(self.store.latest().values())

    def known(self) -> list[TrialRecord]:
        """Those of trials that are not to be measured again."""
        return [each for each in self.records() if not self.is_open(each.study_request)]

    def record_of(self, request: StudyRequest) -> TrialRecord | None:
        """The record that counts of a trial; None where there is none."""
        return self.store.latest().get(request.trial_id)

    def learn_largest_batches(self) -> None:
        """Put what the probes have found in the place of "max"."""
        fits = largest_fits_of(self.plan.study, self.records(), self.plan.world_sizes)
        self.plan = replace(self.plan, fits=tuple(fits))

    def is_open(self, request: StudyRequest) -> bool:
        """Whether the trial is to be measured: it is not known, or ended in a state to try again."""
        known = self.record_of(request)
        return known is None or (known.state in self.retry and known.trial_id not in self._begun)

    def stand_in(self, request: StudyRequest) -> StudyRequest | None:
        """The trial of equal buckets that is measured in the place of ``request``, or to be measured."""
        return self._buckets.stand_in(request)

    def without_failing_anchor(self, request: StudyRequest) -> StudyRequest:
        """``request``, which tries no anchor where the default has failed: that may end its processes."""
        if request.kind != "steps" or request.role not in COMPARED_ROLES or request.anchor is None:
            return request
        default = self.record_of(self.plan.default_curve()[0].request)
        if default is None or default.steps is not None:
            return request
        return request.model_copy(update={"anchor_failure": f"{default.state}: {default.reason}"})

    def begin(self, request: StudyRequest) -> None:
        """A trial begins: it is tried once in a run."""
        self._begun.add(request.trial_id)
        self.cut.discard(request.trial_id)

    def add(self, record: TrialRecord, step_times: Sequence[BlockStepTimes]) -> None:
        """Keep a record."""
        self.store.append(record, step_times)
        self._buckets.learn(record)

    def searched(self) -> list[TrialRecord]:
        """The suggestions of a search that were measured, failed ones included; the default is the first."""
        return searched(self.plan, self.records())

    def winners(self) -> list[TrialRecord]:
        """The trials of the best suggestion, or of the Pareto front for several objectives."""
        found = {each.trial_id for each in resolve(self.study, self.records()).winners}
        return [record for record in self.records() if record.trial_id in found]


class Watcher(Protocol):
    """What follows a run: ``commands.progress.StudyProgress``, or nothing.

    ``trial``: it begins; of one that finds no workers nothing more follows. ``progress``: of several in
    flight the epochs only. ``scaling`` is there for a complete trial of steps. ``group``: the trial that has
    begun is to be served by a worker group of so many, which starts where it does not run yet (None), then
    has started in ``seconds`` (0: it ran already).
    """

    def stage(self, stage: Stage, number: int) -> None: ...
    def trial(self, request: StudyRequest, *, done: int, total: int | None, left_s: float | None) -> None: ...
    def progress(self, request: StudyRequest, progress: Progress) -> None: ...
    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None: ...
    def group(self, num_workers: int, seconds: float | None) -> None: ...


@dataclass
class Session:
    """One run of a plan: begins trials, keeps their records, collects notes stage by stage.

    The stages read and ask: ``ledger`` (the plan, what is known and what is open), ``forecast`` (which trial
    fits into the time), ``measure`` or ``begin`` and ``next_ended``, ``note``.
    """

    plan: InitVar[Plan]
    runner: TrialRunner
    store: InitVar[Store]
    watcher: Watcher
    budget: TimeBudget = field(default_factory=TimeBudget)
    retry: InitVar[frozenset[State]] = frozenset()  # trials that ended so are measured again
    journal: Path | None = None  # of the search, for optuna-dashboard
    verify: bool = False  # whether the changes that the diagnosis proposes are tested in the end
    around: Around = field(default_factory=Around)  # what the diagnosis knows in addition to the trials
    _stage: Stage = Stage.LARGEST_BATCH
    _said: dict[Stage, list[Note]] = field(default_factory=dict)

    def __post_init__(self, plan: Plan, store: Store, retry: frozenset[State]) -> None:
        self.ledger = Ledger(plan, store, retry)
        served = [record.study_request for record in self.ledger.records() if record.group]
        self.in_flight = InFlight(self.runner, self.budget, plan, self.watcher.group, served)
        self.forecast = Forecast(self.ledger, self.budget, self.in_flight, self.verify)
        # a runner counts its own groups: what is resumed goes on where the session before it ended
        self._groups_before = max((record.group for record in self.ledger.records()), default=0)

    @property
    def study(self) -> Study:
        """The study, with what is known in the place of "max"."""
        return self.ledger.study

    # --- what there is to say

    def enter(self, stage: Stage) -> None:
        """Begin a stage, or begin it again: what it said before does not count any more."""
        self._stage = stage
        self._said[stage] = []

    def announce(self, number: int = 1) -> None:
        """Tell the watcher that the stage measures ``number`` of what it is about."""
        self.watcher.stage(self._stage, number)

    def note(self, kind: NoteKind, **fields: Any) -> None:
        """Say something of the stage."""
        self._said.setdefault(self._stage, []).append(Note(kind, self._stage, **fields))

    @property
    def notes(self) -> list[Note]:
        """What there is to say, each once, but for what was left out."""
        said = [each for each in self._all_said if each.kind is not NoteKind.NOT_REACHED]
        return [each for place, each in enumerate(said) if each not in said[:place]]

    @property
    def not_reached(self) -> list[Note]:
        """What was left out: for want of time, or of nodes."""
        counted = not_reached(self.ledger.plan, self.ledger.known(), self.ledger.winners())
        said = [each for each in self._all_said if each.kind is NoteKind.NOT_REACHED]
        return sorted([*said, *counted], key=lambda note: note.stage.value)

    @property
    def _all_said(self) -> list[Note]:
        return [each for stage in Stage for each in self._said.get(stage, [])]

    # --- from a trial to its record

    def measure(self, trial: Trial[StudyRequest], *, done: int, total: int | None) -> TrialRecord:
        """Measure an open trial while nothing else is in flight; its record.

        That of a trial which the time budget has ended is not on disk, but in ``ledger.cut``. ``done`` of
        ``total`` trials of the stage came before it. Raises ``Interrupted``, ``GroupLostError`` when no
        worker group starts, ``RequestError`` for what cannot be placed or written, ``AllFailError`` where the
        default has crashed wherever it was tried.
        """
        assert not self.in_flight
        self.begin(trial, done=done, total=total)
        return self.next_ended()

    def begin(self, trial: Trial[StudyRequest], *, done: int, total: int | None) -> None:
        """Begin an open trial alongside those in flight, for ``next_ended``. Raises as ``measure``."""
        request = self.ledger.without_failing_anchor(trial.request)
        signals.check()
        self.ledger.begin(request)
        left_s = self.forecast.left_s(self._stage, request, trials=total - done) if total else None
        self.watcher.trial(request, done=done, total=total, left_s=left_s)

        def on_progress(progress: Progress) -> None:
            if progress.phase == "epoch" or len(self.in_flight) <= 1:
                self.watcher.progress(request, progress)

        self.in_flight.begin(
            request,
            on_progress,
            suggestion=trial.suggestion,
            expected_s=self.forecast.cost_of(request),
        )

    def next_ended(self) -> TrialRecord:
        """The record of the trial in flight that ends first, on disk as for ``measure``. Raises as it."""
        ended, outcome = self.in_flight.next_ended()
        request = ended.request
        assert request.kind != "collectives"
        if outcome.group:  # 0: no group served it
            outcome = replace(outcome, group=self._groups_before + outcome.group)
        record = outcome.to_record(
            request, study=self.study.name, suggestion=ended.suggestion, started_at=ended.started_at
        )
        if ended.was_cut(outcome):
            return self._not_reached_in_time(record)
        self.ledger.add(record, outcome.step_times)
        if ended.submitted.processes_s:
            self.budget.each_processes_s.append(ended.submitted.processes_s)
        if outcome.files:
            self.ledger.store.add_traces(record.trial_id, outcome.files)
        if request.kind == "steps" and record.steps is not None:
            # without the start of its processes
            longest_s = self.study.measure.max_seconds
            self.budget.took(request, outcome.wall_time_s, record.steps, longest_s, record.group)
        self.watcher.trial_done(record, scaling(record, self.ledger.records()) if record.steps else None)
        if not self.in_flight and self._default_fails:
            crash = self.ledger.record_of(self.ledger.plan.default_curve()[0].request)
            self.note(NoteKind.ALL_FAIL, reason=crash.reason if crash else "")
            raise AllFailError
        return record

    def _not_reached_in_time(self, record: TrialRecord) -> TrialRecord:
        """What is shown of a trial that the time budget has ended.

        No failure of its own and not on disk: a study that goes on asks it again.
        """
        reason = f"the time budget was spent: ended after {record.wall_time_s:.0f} s, --resume asks it again"
        shown = record.model_copy(update={"state": "timeout", "reason": reason})
        self.ledger.cut.add(record.trial_id)
        self.watcher.trial_done(shown, None)
        return shown

    @property
    def _default_fails(self) -> bool:
        """Whether the default has crashed wherever it was tried, and nothing has completed.

        What is in flight then may complete yet; no more begins until it is known.
        """
        if any(each.state == "complete" for each in self.ledger.records()):
            return False
        curve = [trial.request for trial in self.ledger.plan.default_curve()]
        ended = [self.ledger.record_of(request) for request in curve if not self.ledger.is_open(request)]
        crashed = [record for record in ended if record is not None and record.state == "crashed"]
        return len(crashed) == len(curve)

    # --- several in flight, and nodes that are gone

    @contextmanager
    def leaving_out_what_has_no_room(self, **of: Any) -> Iterator[None]:
        """Inside, trials that do not fit on the nodes any more are left out; ``of``: fields of the note."""
        try:
            yield
        except NoRoomError as lost:
            self.note(NoteKind.NO_ROOM, reason=str(lost), **of)

    def _hear(self) -> None:
        """Wait for the trial in flight that ends first; one that does not fit any more is left out."""
        before = self.in_flight.requests
        try:
            self.next_ended()
        except NoRoomError as lost:
            left = self.in_flight.requests
            for request in (each for each in before if each not in left):
                self.note(NoteKind.NO_ROOM, reason=str(lost), requests=(request,))

    def has_room(self, request: StudyRequest) -> bool:
        """Whether ``request`` may begin alongside the trials in flight."""
        is_in_doubt = bool(self.in_flight) and self._default_fails
        return not is_in_doubt and self.in_flight.has_room(request)

    def make_room(self, request: StudyRequest) -> None:
        """Wait for trials in flight until ``request`` may begin. Raises as ``measure``."""
        while not self.has_room(request):
            self._hear()

    def wait_while(self, waits: Callable[[Sequence[TrialRequest]], bool]) -> None:
        """Wait for trials in flight while ``waits`` says so of them. Raises as ``measure``."""
        while waits(self.in_flight.requests):
            self._hear()

    def finish(self) -> None:
        """Wait for every trial in flight. Raises as ``measure``."""
        self.wait_while(bool)
