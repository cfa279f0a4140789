"""What the stages of a run share: the plan, and the way from a trial to its record on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from raybench.analysis import choice
from raybench.analysis.diagnosis.case import Around
from raybench.analysis.estimates.efficiency import Scaling, scaling
from raybench.analysis.labels import knob_words, trial_words
from raybench.analysis.same_buckets import known_buckets
from raybench.errors import HopelessError, NoRoomError
from raybench.launch import signals
from raybench.launch.runner import OnProgress, TrialRunner
from raybench.plan.budget import Budget
from raybench.plan.trials import Plan, Trial
from raybench.records.messages import BlockStepTimes, Progress, RankFile
from raybench.records.record import State, TrialRecord
from raybench.records.requests import StudyRequest
from raybench.run.expected_time import ExpectedTime
from raybench.run.hopeless import fails_elsewhere
from raybench.run.under_way import UnderWay
from raybench.spec.counted import counted
from raybench.spec.study import Study


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
    """Who is told what goes on: ``commands.progress.StudyProgress``, or nobody.

    ``trial``: it begins, ``beside`` so many under way; of one that finds no workers nothing more is told.
    ``scaling`` is there for a complete trial of steps. ``group``: the trial that has begun is to be served by
    a worker group of so many, which starts where it does not run yet (None), then has started in ``seconds``
    (0: it ran already).
    """

    def stage(self, text: str) -> None: ...
    def trial(
        self, request: StudyRequest, *, done: int, total: int | None, left_s: float | None, beside: int = 0
    ) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None: ...
    def best(self, record: TrialRecord, scaling: Scaling) -> None: ...
    def group(self, num_workers: int, seconds: float | None) -> None: ...


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
    verify: bool = False  # whether the changes that the diagnosis proposes are tested in the end
    around: Around = field(default_factory=Around)  # what the diagnosis knows beside the trials
    not_reached: list[str] = field(default_factory=list)  # what the time budget left out, in words
    notes: list[str] = field(default_factory=list)
    has_measured: bool = False  # whether any record is of this session
    cut: dict[str, StudyRequest] = field(default_factory=dict)  # trials that the time budget ended, by id
    _retried: set[str] = field(default_factory=set)
    _first_crash: TrialRecord | None = None  # while nothing is complete: may be that of all trials
    _looked_at_others: bool = False  # whether it was held against other settings

    def __post_init__(self) -> None:
        self._under_way = UnderWay(
            self.runner,
            self.budget,
            group_size=self.plan.group_size,
            device=self.plan.device,
            environments=self.plan.environments(),
            on_group=self.watcher.group,
        )
        self.expected = ExpectedTime(
            self.plan, self.budget, self._under_way, self.records, self.is_open, self.verify
        )
        # a runner counts its own groups: what is resumed goes on where the session before it ended
        known = self.store.latest().values()
        self._groups_before = max((record.group for record in known), default=0)
        self._buckets = known_buckets(self.plan.study, known)

    @property
    def study(self) -> Study:
        """The study, with what is known in the place of "max"."""
        return self.plan.study_in_numbers

    def records(self) -> list[TrialRecord]:
        """The record that counts of each trial, in the order of their first attempts."""
        return list(self.store.latest().values())

    def is_open(self, request: StudyRequest) -> bool:
        """Whether the trial is to be measured: it is not known, or ended in a state to try again."""
        known = self.store.latest().get(request.trial_id)
        return known is None or (known.state in self.retry and known.trial_id not in self._retried)

    def is_another(self, request: StudyRequest) -> bool:
        """Whether a trial of equal buckets is measured in the place of ``request``, or to be measured."""
        return self._buckets.stand_in(request) is not None

    def measured_as_another(self, request: StudyRequest) -> StudyRequest | None:
        """The trial of equal buckets that was measured in the place of ``request``; None if there is none."""
        other = self._buckets.stand_in(request)
        return other if other is not None and other.trial_id in self.store.latest() else None

    def note_the_same(self, pairs: Iterable[tuple[StudyRequest, StudyRequest]]) -> None:
        """Say which trials were not measured, as others, which stand second, are the same thing."""
        found = Counter(
            tuple(knob_words("bucket_cap_mb", each.config.setting.bucket_cap_mb) for each in pair)
            for pair in pairs
        )
        for (own, other), number in found.items():
            trials = f"{counted(number, 'trial')} {'was' if number == 1 else 'were'}"
            self.notes.append(f"{own} are {other} for this model: {trials} not measured a second time")

    def note_without_profile(self, requests: Iterable[StudyRequest]) -> None:
        """Say which of ``requests`` were measured before a profile was asked for."""
        for request in requests:
            if request.kind != "steps" or not request.measure.profile or self.is_open(request):
                continue
            steps = self.store.latest()[request.trial_id].steps
            if steps is not None and not steps.profile and "profile" not in steps.missing:
                note = (
                    f"no profile of trial {request.trial_id} ({trial_words(self.study, request)}): it was "
                    "measured before one was asked for, and nothing is measured twice"
                )
                if note not in self.notes:
                    self.notes.append(note)

    @property
    def num_under_way(self) -> int:
        """Trials that have begun and have no record yet."""
        return len(self._under_way)

    def measure(self, trial: Trial, *, done: int, total: int | None) -> TrialRecord:
        """The trial's record, from the disk where it is known already; nothing else is under way.

        That of a trial which the time budget has ended is not on disk, but in ``cut``. ``done`` of ``total``
        trials of the stage came before it. Raises ``Interrupted``, ``GroupLostError`` when no worker group
        starts, ``RequestError`` for what cannot be placed or written.
        """
        assert not self.num_under_way
        if not self.is_open(trial.request):
            return self.store.latest()[trial.request.trial_id]
        self.begin(trial, done=done, total=total)
        return self.next_ended()

    def begin(self, trial: Trial, *, done: int, total: int | None) -> None:
        """Begin an open trial beside those under way, for ``next_ended``. Raises as ``measure``."""
        request = trial.request
        signals.check()
        self._retried.add(request.trial_id)
        self.cut.pop(request.trial_id, None)
        left_s = self.expected.left_s(request, trials=total - done) if total else None
        self.watcher.trial(request, done=done, total=total, left_s=left_s, beside=self.num_under_way)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._under_way.begin(trial, started, self._progress(request), self.expected.own_cost_s(request))

    def next_ended(self) -> TrialRecord:
        """The record of the trial under way that ends first, on disk as for ``measure``. Raises as it."""
        ended, outcome = self._under_way.next_ended()
        request, trial = ended.trial.request, ended.trial
        if outcome.group:  # 0: no group served it
            outcome = replace(outcome, group=self._groups_before + outcome.group)
        record = outcome.to_record(
            request, study=self.plan.study.name, suggestion=trial.suggestion, started_at=ended.started_at
        )
        if ended.was_cut(outcome):
            return self._not_reached_in_time(record)
        self.store.append(record, outcome.step_times)
        self.has_measured = True
        self._buckets.learn(record)
        self.notes += [note for note in record.notes if note not in self.notes]
        if ended.submitted.processes_s:
            self.budget.processes_took(ended.submitted.processes_s)
        if outcome.files:
            self.store.add_traces(record.trial_id, outcome.files)
        if request.kind == "steps" and record.steps is not None:
            # without the start of its processes
            longest_s = self.plan.study.measure.max_seconds
            self.budget.took(request, outcome.wall_time_s, record.steps, longest_s, record.group)
        self.watcher.trial_done(record, scaling(record, self.records()) if record.steps else None)
        self._end_if_hopeless(record)
        return record

    def cut_of(self, requests: Iterable[StudyRequest]) -> list[StudyRequest]:
        """Those that had begun and the time budget ended; what was not begun again since."""
        return [each for each in requests if each.trial_id in self.cut]

    def _not_reached_in_time(self, record: TrialRecord) -> TrialRecord:
        """What is told of a trial that the time budget has ended.

        No failure of its own and not on disk: a study that goes on asks it again.
        """
        reason = f"the time budget was spent: ended after {record.wall_time_s:.0f} s, --resume asks it again"
        told = record.model_copy(update={"state": "timeout", "reason": reason})
        self.cut[record.trial_id] = record.study_request
        self.watcher.trial_done(told, None)
        return told

    def _end_if_hopeless(self, record: TrialRecord) -> None:
        """Raise ``HopelessError`` where nothing has completed and all other settings fail as the first crash.

        Once nothing is under way: what began beside it may complete yet; no more begins until it is known.
        """
        if self._looked_at_others or (record.state != "crashed" and self._first_crash is None):
            return
        if self._under_way.is_unfit(record.study_request):  # none of its settings was tried
            return
        known = self.store.latest().values()
        if any(each.state == "complete" for each in known):  # from now on every failure is its own
            self._looked_at_others, self._first_crash = True, None
            return
        crash = self._first_crash = self._first_crash or record
        if self.num_under_way:
            return
        self._looked_at_others, self._first_crash = True, None
        elsewhere = fails_elsewhere(self.plan, crash, self._under_way.aside)
        if elsewhere:
            reason = f"{crash.reason} (whatever the setting: on one device alone too, with {elsewhere})"
            self.store.append(crash.model_copy(update={"reason": reason}))
            first = "trial" if len(known) == 1 else counted(len(known), "trial")
            raise HopelessError(
                f"no more was asked: the first {first} failed, and would whatever the setting"
            )

    @contextmanager
    def as_far_as_it_fits(self, what: str) -> Iterator[None]:
        """Inside, trials that do not fit on the nodes any more are left out; a note names ``what``."""
        try:
            yield
        except NoRoomError as lost:
            self._leave_out(what, lost)

    def _leave_out(self, what: str, lost: NoRoomError) -> None:
        self.notes.append(f"not measured, since nodes are gone: {what} ({lost})")

    def _hear(self) -> None:
        """Wait for the trial under way that ends first; one that does not fit any more is left out."""
        before = self._under_way.requests
        try:
            self.next_ended()
        except NoRoomError as lost:
            left = self._under_way.requests
            for request in (each for each in before if each not in left):
                self._leave_out(trial_words(self.study, request), lost)

    def has_room(self, request: StudyRequest) -> bool:
        """Whether ``request`` may begin beside the trials under way; see ``_end_if_hopeless``."""
        is_in_doubt = self._first_crash is not None and self.num_under_way > 0
        return not is_in_doubt and self._under_way.has_room(request)

    def make_room(self, request: StudyRequest) -> None:
        """Wait for trials under way until ``request`` may begin. Raises as ``measure``."""
        while not self.has_room(request):
            self._hear()

    def wait_while(self, waits: Callable[[Sequence[StudyRequest]], bool]) -> None:
        """Wait for trials under way while ``waits`` says so of them. Raises as ``measure``."""
        while waits(self._under_way.requests):
            self._hear()

    def finish(self) -> None:
        """Wait for every trial under way. Raises as ``measure``."""
        while self.num_under_way:
            self._hear()

    def _progress(self, request: StudyRequest) -> OnProgress:
        """Where the trial tells what it does; beside others only its epochs, which then name it."""

        def told(progress: Progress) -> None:
            if self.num_under_way <= 1:
                self.watcher.progress(progress)
            elif progress.phase == "epoch":
                words = f"{trial_words(self.study, request)}: {progress.detail}"
                self.watcher.progress(replace(progress, detail=words))

        return told


def winners(session: Session) -> list[TrialRecord]:
    """The trials of the best suggestion, or of the Pareto front for several objectives."""
    chosen = choice.choose(session.study, session.records(), session.plan.target)
    return [candidate.record for candidate in chosen]
