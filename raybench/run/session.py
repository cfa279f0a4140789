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
from raybench.records.requests import StepsRequest, StepsRole, StudyRequest, TrainingRequest
from raybench.run.hopeless import fails_elsewhere
from raybench.run.under_way import UnderWay
from raybench.spec.counted import counted
from raybench.spec.knobs import Setting
from raybench.spec.study import Study

UNKNOWN_BEST = 0.5  # of the default's curve, for that of a better setting that is not found yet
RESERVED = 0.85  # of what the parts after the search would take at their full length


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

    def stage(self, text: str) -> None: ...  # noqa: D102
    def trial(  # noqa: D102
        self, request: StudyRequest, *, done: int, total: int | None, left_s: float | None, beside: int = 0
    ) -> None: ...
    def progress(self, progress: Progress) -> None: ...  # noqa: D102
    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None: ...  # noqa: D102
    def best(self, record: TrialRecord, scaling: Scaling) -> None: ...  # noqa: D102
    def group(self, num_workers: int, seconds: float | None) -> None: ...  # noqa: D102


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
    # the best so far, but for the default: what will be confirmed; None: nothing is known of it
    best: tuple[Setting, ...] | None = None
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
            on_group=self.watcher.group,
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
        """Whether another setting of the study is the same thing and stands for it: of equal buckets."""
        config = request.config
        return (
            request.kind == "steps"
            and self._buckets.standing(config.setting, config.world_size) != config.setting
        )

    def measured_as_another(self, request: StudyRequest) -> StudyRequest | None:
        """The same of another setting that is measured and has equal buckets; None where there is none."""
        if not self.is_another(request):
            return None
        config = request.config
        standing = self._buckets.standing(config.setting, config.world_size)
        other = request.model_copy(update={"config": config.model_copy(update={"setting": standing})})
        known = self.store.latest().get(other.trial_id)
        return other if known is not None and known.state == "complete" else None

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
        left_s = self.expected_s(request, trials=total - done) if total else None
        self.watcher.trial(request, done=done, total=total, left_s=left_s, beside=self.num_under_way)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._under_way.begin(trial, started, self._progress(request), self._own_cost_s(request))

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

    def start_cost_s(self, request: StudyRequest) -> float:
        """Expected seconds until a worker group is there that may serve ``request``, of those started yet."""
        return self._under_way.start_cost_s(request)

    def cost_s(self, role: StepsRole, world_size: int, *settings: Setting) -> float:
        """Expected seconds of a trial of steps; ``settings``: what it measures, as far as that is known."""
        rounds_s = self.budget.cost(role, world_size, self.plan.study.measure.max_seconds, settings)
        return rounds_s + self.budget.processes_s

    def trial_cost_s(self, request: StepsRequest) -> float:
        """Expected seconds of this one."""
        return self.cost_s(request.role, request.config.world_size, *request.settings)

    def _own_cost_s(self, request: StudyRequest) -> float:
        """Expected seconds of any trial; 0 if unknown."""
        if request.kind == "training":
            return self.training_cost_s(request)
        if request.kind == "steps":
            return self.trial_cost_s(request)
        return self.cost_s(request.role, request.config.world_size)

    def training_cost_s(self, request: TrainingRequest) -> float:
        """Expected seconds of a training trial; 0 if unknown."""
        epochs_s = self.budget.training_cost(request, self.records())
        return epochs_s + self.budget.processes_s if epochs_s else 0.0

    def in_time(
        self, rest: Sequence[StepsRequest], *, fixed_s: float, steps_s: float = 0.0
    ) -> StepsRequest | None:
        """The first of ``rest`` with the time for its rounds that it may take; see ``Budget.in_time``.

        After them come trials of steps that are expected to take ``steps_s``, and ``fixed_s`` of what cannot
        be cut short; processes of the trials' own are known here.
        """
        under_way = self._under_way.requests
        asked = [*rest, *(each for each in under_way if each.kind == "steps")]
        processes_s = self.budget.processes_s
        costs_s = [self.trial_cost_s(each) - processes_s for each in asked]
        steps_s += self._side_by_side_s(costs_s, asked)
        fixed_s += self._side_by_side_s([processes_s] * len(asked), asked)
        return self.budget.in_time(rest[0], costs_s[0], steps_s, fixed_s)

    def shortest(self, request: StepsRequest, *, fixed_s: float, after_s: float) -> StepsRequest | None:
        """``request`` with the least time that says something: see ``Budget.shortest``."""
        return self._shortest(request, self.trial_cost_s(request), fixed_s, after_s)

    def _shortest(
        self, request: StepsRequest, cost_s: float, fixed_s: float, after_s: float
    ) -> StepsRequest | None:
        processes_s = self.budget.processes_s
        if processes_s:  # of what comes after it too, and they cannot be cut
            fixed_s, after_s = fixed_s + after_s, 0.0
        return self.budget.shortest(request, cost_s - processes_s, after_s, fixed_s + processes_s)

    def suggestion_in_time(self, number: int) -> StepsRequest | None:
        """The request of a suggestion, with the time for its rounds; ``number`` are still to be made.

        Time is kept for what comes after the search, cut as short as this one. None where there is none.
        """
        request, processes_s = self.plan.search(self.plan.default()), self.budget.processes_s
        # the first one shows what trials cost: until then the reserve is the worst case of each
        reserve_s = self.search_reserve_s() if self.budget.knows else 0.0
        expected_s = self.cost_s("search", self.plan.target) - processes_s
        left = [request] * number
        steps_s = self._side_by_side_s([expected_s] * number, left) + reserve_s
        fixed_s = self._side_by_side_s([processes_s] * number, left) + self.training_reserve_s()
        in_time = self.budget.in_time(request, expected_s, steps_s, fixed_s)
        if in_time is not None:
            return in_time
        return self._shortest(request, expected_s + processes_s, self.training_reserve_s(), reserve_s)

    def _side_by_side_s(self, costs_s: Sequence[float], requests: Sequence[StudyRequest]) -> float:
        """Seconds that ``requests`` take, of which each takes its part of ``costs_s``."""
        at_once = min((self._under_way.capacity(each) for each in requests), default=1)
        return max(sum(costs_s) / at_once, max(costs_s, default=0.0))

    def training_reserve_s(self) -> float:
        """Seconds to keep back for training while steps are measured: what it needs, half of what is left.

        More would leave nothing measured where an epoch alone takes longer than the budget.
        """
        left_s = self.budget.left_s
        if left_s is None:
            return 0.0
        open_ = [each for each in self.plan.training(self.records()) if self.is_open(each)]
        needed_s = self._side_by_side_s([self.training_cost_s(each) for each in open_], open_)
        return min(needed_s, left_s / 2)

    def search_reserve_s(self) -> float:
        """Seconds to keep back for what comes after the search: the curves and the confirmation.

        Of the default and of one other setting at least, as a better one may still be found: it is faster. As
        much as they need with somewhat shorter rounds: what is left in the end is divided among them.
        """
        starts, default = self.plan.study.measure.starts, self._default()
        curves_s = self._default_curve_s() + sum(self._curve_s(each) for each in self.best or ())
        confirmation_s = self.confirmation_cost_s()
        if not self.best:
            curves_s += UNKNOWN_BEST * self._curve_s(*default)
            confirmation_s = self.cost_s("confirmation", self.plan.target, *default)
            confirmation_s += self.verification_cost_s()
        curve = self.plan.curve(self.plan.default(), in_answer=True)
        curves_s /= min(map(self._under_way.capacity, curve), default=1)
        return RESERVED * (curves_s + confirmation_s) + (starts - 1) * self.budget.start_s

    def _default_curve_s(self) -> float:
        """Expected seconds of what is still to be measured of the default's curve."""
        if not self._default():
            return self._curve_s()
        curve = self.plan.curve(self.plan.default(), in_answer=True)
        return sum(self.trial_cost_s(request) for request in curve if self.is_open(request))

    def _curve_s(self, *settings: Setting) -> float:
        """Expected seconds of the trials of one curve."""
        sizes, starts = self.plan.curve_sizes, self.plan.study.measure.starts
        return starts * sum(self.cost_s("scaling", size, *settings) for size in sizes)

    def confirmation_cost_s(self) -> float:
        """Expected seconds of the confirmations: none where the default is the best so far.

        One verification with them, where the diagnosis is to be verified.
        """
        target, default = self.plan.target, self._default()
        verification_s = self.verification_cost_s()
        if self.best is None:
            return self.cost_s("confirmation", target) + verification_s
        confirmed = sum(self.cost_s("confirmation", target, each, *default) for each in self.best)
        return confirmed + verification_s

    def verification_cost_s(self) -> float:
        """Expected seconds of the verification that time is kept for: of the first finding's change."""
        if not self.verify:
            return 0.0
        return self.cost_s("verification", self.plan.target, *self._default())

    def _default(self) -> tuple[Setting, ...]:
        """The default's setting; none while what "max" stands for is not known."""
        is_unknown = self.plan.study.knobs.has_max and not self.plan.fits
        return () if is_unknown else (self.plan.default().setting,)

    def expected_s(self, request: StudyRequest, trials: int) -> float | None:
        """Seconds until so many trials like ``request`` are done, and what follows them; None: not known."""
        if request.kind == "training":
            return trials * self.training_cost_s(request) / self._under_way.capacity(request) or None
        if not self.budget.knows:
            return None
        left_s = trials * self._own_cost_s(request) / self._under_way.capacity(request)
        if request.role == "search":
            left_s += self.search_reserve_s()
        elif request.role == "scaling":
            left_s += (self.plan.study.measure.starts - 1 - request.start) * self.budget.start_s
        return left_s if self.budget.left_s is None else min(left_s, self.budget.left_s)


def winners(session: Session) -> list[TrialRecord]:
    """The trials of the best suggestion, or of the Pareto front for several objectives."""
    chosen = choice.choose(session.study, session.records(), session.plan.target)
    return [candidate.record for candidate in chosen]
