"""The time of a run: what trials are expected to take, what is left for them, whether the next one fits.

``TimeBudget`` learns from the trials that it sees; ``Forecast`` divides what is left among all that is still
to be measured; ``estimate`` bounds a study before anything is started.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING

from raybench.analysis.cost import steps_time
from raybench.analysis.stats.stopping import LEAST_MEASURED
from raybench.plan.notes import Stage, num_suggestions, open_visits
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, StudyRequest, TrainingRequest, TrialRequest
from raybench.records.results import StepsResult
from raybench.spec.workloads import ScriptSpec

if TYPE_CHECKING:
    from raybench.driver.groups import Groups
    from raybench.driver.session import Ledger

# Of a trial's time, until one was seen; the rest is set-up, warm-up and what is measured outside the rounds.
ROUNDS_SHARE = 0.7
# Of rounds: blocks shrink to fit the fewest rounds into the time, and shorter ones than these leave say
# nothing. With less time than that for each trial some are left out.
LEAST_ROUNDS_S = 2.0
LEAST_GRACE_S = 10.0  # past the time budget, for a trial of which nothing is expected: to set up

# As measured on two cores: Ray and a worker group until its first trial, ending both and the report, and
# processes of a trial's own.
START_S = (10.0, 25.0)
FINISH_S = 11.0
OWN_PROCESSES_S = (12.0, 25.0)
# At least, of a block of steps, as the devices ask for it; less where the rounds do not fit into max_seconds.
BLOCK_S = {"cpu": 0.15, "cuda": 0.3}
SET_UP_S = 0.5  # at least, of a trial: its models, its first steps
SCRIPT_S = (4.0, 15.0)  # of a script, until its steps are timed: its process, its imports, its first steps


@dataclass(frozen=True)
class Cost:
    """What trials of steps are expected to take, in s."""

    overhead_s: float = 0.0  # cannot be cut: set-up, warm-up, what is measured outside the rounds
    rounds_s: float = 0.0
    least_rounds_s: float = 0.0  # shorter rounds say nothing

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.overhead_s + self.rounds_s

    @property
    def least_s(self) -> float:
        """Where all rounds are as short as they say something."""
        return self.overhead_s + self.least_rounds_s

    def __add__(self, other: Cost) -> Cost:
        """One after the other."""
        return Cost(
            self.overhead_s + other.overhead_s,
            self.rounds_s + other.rounds_s,
            self.least_rounds_s + other.least_rounds_s,
        )


@dataclass(frozen=True)
class _Seen:
    """How long a trial of steps took."""

    cost: Cost
    num_variants: int
    is_first: bool  # of its worker group: what is kept or compiled for all of them it has made


def _kinds(request: StepsRequest) -> tuple[Hashable, ...]:
    """The kinds of trials that one is of, the closest first."""
    config = request.config
    alone, role = config.world_size == 1, request.role
    return (alone, role, config.setting), (alone, role), (alone,), ()


def _mean(seen: Sequence[_Seen]) -> Cost:
    """The mean cost, of the rounds for one variant; a group's first trial only where there are no others."""
    later = [each for each in seen if not each.is_first] or seen
    return Cost(
        fmean(each.cost.overhead_s for each in later),
        fmean(each.cost.rounds_s / each.num_variants for each in seen),
        fmean(each.cost.least_rounds_s for each in seen),
    )


@dataclass
class TimeBudget:
    """The clock of a run, and what trials are expected to take from those that it has seen."""

    deadline: float | None = None  # of ``monotonic``: when the last trial must be done; None: no limit
    epoch_samples: float | None = None  # of an epoch, evaluation included; None: not known beforehand
    starts_s: list[float] = field(default_factory=list)  # what each worker group took to start
    each_processes_s: list[float] = field(default_factory=list)  # what each trial took for its own processes
    _seen: dict[Hashable, list[_Seen]] = field(default_factory=dict)  # by kind, each in several
    _means: dict[Hashable, Cost] = field(default_factory=dict)  # of a kind, its rounds for one variant
    _groups: set[int] = field(default_factory=set)  # worker groups of which a trial was seen

    @property
    def now_s(self) -> float:
        """By the clock of the deadline."""
        return monotonic()

    @property
    def start_s(self) -> float:
        """Expected seconds until a new worker group is ready: as those before it; 0 if unknown."""
        return fmean(self.starts_s) if self.starts_s else 0.0

    @property
    def processes_s(self) -> float:
        """Expected seconds of a trial to start and end processes of its own; 0: a group serves it."""
        return fmean(self.each_processes_s) if self.each_processes_s else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.deadline is None else max(self.deadline - monotonic(), 0.0)

    @property
    def knows(self) -> bool:
        """Whether a trial of steps was seen."""
        return bool(self._seen)

    def has(self, seconds: float) -> bool:
        """Whether there is time for that."""
        return self.deadline is None or monotonic() + seconds <= self.deadline

    def took(
        self, request: StepsRequest, wall_time_s: float, steps: StepsResult, max_seconds: float, group: int
    ) -> None:
        """Learn how long a complete trial of ``group`` took, as if its rounds had had ``max_seconds``."""
        rounds_s, rounds = steps.measure_s, len(steps.rounds)
        if steps.stopped_by == "max_seconds":
            rounds_s += max_seconds - request.measure.max_seconds
        least_s = LEAST_ROUNDS_S
        if rounds < request.measure.min_rounds:  # steps are long, blocks as short as they get
            least_s = LEAST_MEASURED * steps.measure_s / rounds
        cost = Cost(max(wall_time_s - steps.measure_s, 0.0), rounds_s, min(least_s, rounds_s))
        seen = _Seen(cost, len(request.variants), is_first=group not in self._groups)
        self._groups.add(group)
        for kind in _kinds(request):
            self._seen.setdefault(kind, []).append(seen)
        self._means.clear()

    def cost(self, request: StepsRequest) -> Cost:
        """What a trial is expected to take: as those of its kind, of its setting where one was seen.

        Where none of its kind was seen the rounds of others, by the number of variants.
        """
        most_s = request.measure.max_seconds
        if not self._seen:
            return Cost(0.0, most_s, min(LEAST_ROUNDS_S, most_s))
        kinds = _kinds(request)
        kind = next(each for each in kinds if each in self._seen)
        if kind not in self._means:
            self._means[kind] = _mean(self._seen[kind])
        of_one = self._means[kind]
        rounds_s = of_one.rounds_s * len(request.variants)
        is_fixed = request.measure.steps is not None  # so many rounds of so many steps cannot be cut
        least_s = rounds_s if is_fixed else min(of_one.least_rounds_s, rounds_s)
        return Cost(of_one.overhead_s + self.processes_s, rounds_s, least_s)

    def fit(self, request: StepsRequest, after: Cost, left_s: float) -> StepsRequest | None:
        """``request`` with the time for its rounds that it may take of ``left_s``; None: there is too little.

        ``after``: what else is to be measured. Where time is short all rounds are cut by the same share of
        what can be cut.
        """
        own = self.cost(request)
        wanted_s, least_s = (own + after).seconds, (own + after).least_s
        if wanted_s <= left_s:
            return request
        if own.least_s > left_s:
            return None
        share = max((left_s - least_s) / (wanted_s - least_s), 0.0) if wanted_s > least_s else 0.0
        rounds_s = own.least_rounds_s + share * (own.rounds_s - own.least_rounds_s)
        cut = {"max_seconds": min(max(rounds_s, LEAST_ROUNDS_S), request.measure.max_seconds)}
        return request.model_copy(update={"measure": request.measure.model_copy(update=cut)})

    def training_cost(self, request: TrainingRequest, known: Sequence[TrialRecord]) -> float:
        """Expected seconds of a training trial: as its like took, else by its throughput; 0 if unknown."""
        alike = [
            each
            for each in known
            if each.config.world_size == request.config.world_size
            and each.config.setting == request.config.setting
        ]
        trained = [
            each.wall_time_s
            for each in alike
            if each.training is not None and not each.training.resumed_after
        ]
        if trained:
            return sum(trained) / len(trained)
        stepped = [each for each in alike if each.steps is not None]
        if not stepped or self.epoch_samples is None:
            return 0.0
        epochs, samples = request.training.epochs, self.epoch_samples
        return min(steps_time(each, epochs * samples).value for each in stepped)

    def bounded(self, request: TrialRequest, expected_s: float = 0.0) -> TrialRequest:
        """``request``, ended soon after the time budget: its processes are there, and the clock runs.

        What is left, and a grace: what the trial is expected to take, its rounds at least, and a start of its
        processes. A trial that is ended so takes far longer than was expected when it began.
        """
        left_s = self.left_s
        if left_s is None:
            return request
        grace_s = max(expected_s, LEAST_GRACE_S)
        if request.kind == "steps":
            grace_s = max(grace_s, request.measure.max_seconds / ROUNDS_SHARE)
        timeout_s = math.ceil(left_s + grace_s + self.start_s + self.processes_s)
        if timeout_s >= request.timeout_s:
            return request
        shorter: dict[str, object] = {"timeout_seconds": float(timeout_s)}
        if request.kind in ("steps", "collectives"):
            shorter = {"measure": request.measure.model_copy(update=shorter)}
        elif request.kind == "training":
            shorter = {"training": request.training.model_copy(update=shorter)}
        return request.model_copy(update=shorter)


@dataclass(frozen=True)
class Forecast:
    """What trials are expected to take, what is kept for later ones, and whether the next one fits."""

    ledger: Ledger
    budget: TimeBudget
    groups: Groups
    verify: bool  # whether proposed changes are tested in the end

    def cost_of(self, request: StudyRequest) -> float:
        """Expected seconds of any trial; 0: not known."""
        if request.kind == "training":
            epochs_s = self.budget.training_cost(request, self.ledger.records())
            return epochs_s + self.budget.processes_s if epochs_s else 0.0
        return self.budget.cost(request).seconds if request.kind == "steps" else 0.0

    def fit(self, stage: Stage, queue: Sequence[StepsRequest]) -> tuple[int, StepsRequest] | None:
        """Which of ``queue``, what a stage has still to measure, is next, with the time for its rounds.

        The first. Where there is not time for all, however short: the first of those of the lowest visit
        numbers for which there is; None where there is for none. Time is kept for training and verification,
        and by a search for the winner's curve.
        """
        if self.budget.left_s is None:
            return 0, queue[0]
        left_s, later, least_s = self._left_s(stage, queue[0]), self._later(stage), 0.0
        if stage is Stage.SEARCH:
            least_s = self._all(each for each in later if each.visit == 0).least_s
        # of equal buckets one is measured
        open_ = [place for place, each in enumerate(queue) if not place or self.ledger.stand_in(each) is None]
        groups, in_time = set[Hashable](), list[int]()
        for place in sorted(open_, key=lambda place: queue[place].visit):
            least_s += self.budget.cost(queue[place]).least_s
            groups.add(_group(queue[place]))
            if least_s + (len(groups) - 1) * self.budget.start_s > left_s:
                break
            in_time.append(place)
        if not in_time:
            return None
        first = min(in_time)
        plan = self.ledger.plan  # no round is shortened for what nobody asked for
        rest = [queue[place] for place in open_ if place != first and not plan.is_extra(queue[place])]
        starts = self._starts([queue[first], *rest, *later])
        after = self._all([*rest, *later]) + starts
        request = self.budget.fit(queue[first], after, left_s)
        return None if request is None else (first, request)

    def _left_s(self, stage: Stage, request: StepsRequest) -> float:
        """Seconds for trials of ``stage``, ``request`` the next; training and verification keep theirs."""
        left_s = self.budget.left_s
        assert left_s is not None, "asked within a time budget only"
        trainings = training_requests(self.ledger.plan, self.ledger.records())
        needed_s = math.fsum(self.cost_of(each) for each in trainings if self.ledger.is_open(each))
        # more than half would leave nothing measured where an epoch alone takes longer than the budget
        left_s -= min(needed_s, left_s / 2)
        if self.verify and stage is not Stage.VERIFICATION:  # the first finding's change
            plan, default = self.ledger.plan, self.ledger.plan.default()
            config = plan.search(default).config
            changed = plan.verification(config, default.setting, default.environment)
            left_s -= self.budget.cost(changed).least_s
        return left_s - self.groups.start_cost_s(request)

    def _all(self, requests: Iterable[StepsRequest]) -> Cost:
        return sum(map(self.budget.cost, requests), Cost())

    def _starts(self, requests: Sequence[StepsRequest]) -> Cost:
        """Worker groups that are to be started for ``requests``, the first of which has its group."""
        return Cost(overhead_s=(len(set(map(_group, requests))) - 1) * self.budget.start_s)

    def _later(self, stage: Stage) -> list[StepsRequest]:
        """The trials of steps that the stages after ``stage`` measure, as far as they are known."""
        if stage.value >= Stage.VISITS.value:
            return []
        plan, known = self.ledger.plan, self.ledger.known()
        number = num_suggestions(plan, known) if stage.value < Stage.SEARCH.value else 0
        return [plan.search()] * number + open_visits(plan, known)

    def curve_reserve_s(self) -> float:
        """Seconds to keep back for the curves of default and winner while the largest batch is looked for."""
        plan = self.ledger.plan
        curve = plan.curve(plan.default())
        return 2 * self._all(curve).least_s

    def left_s(self, stage: Stage, request: StudyRequest, trials: int) -> float | None:
        """Seconds until so many trials like ``request`` are done, and what follows them; None: not known."""
        left_s = trials * self.cost_of(request)
        if request.kind == "training":
            return left_s or None
        if not self.budget.knows:
            return None
        if request.kind == "steps":
            later = [request, *self._later(stage)]
            left_s += (self._all(later[1:]) + self._starts(later)).seconds
        return left_s if self.budget.left_s is None else min(left_s, self.budget.left_s)


def _group(request: StepsRequest) -> Hashable:
    """What a worker group serves: one start, and the variables of its processes."""
    return request.start, frozenset(request.config.environment.items())


# --- before anything is started


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds from the command to the report, between bounds; without trainings and probes of "max"."""

    least_s: float
    most_s: float
    num_starts: int  # of worker groups; with ``own_processes`` one a trial


def estimate(plan: Plan, trials: Sequence[StepsRequest], *, own_processes: bool = False) -> TimeEstimate:
    """Of ``trials``: the least rounds of the shortest blocks, and all the time that rounds may have."""
    groups, num_starts = len(plan.environments()), plan.study.measure.starts
    # with process knobs a group of each for the first visits, and of default and winner for those that follow
    starts = groups + 2 * num_starts if groups > 1 else num_starts
    starts = 1 if own_processes else starts
    each_s = OWN_PROCESSES_S if own_processes else (0.0, 0.0)
    least_s, most_s = (
        START_S[end] * starts + math.fsum(each_s[end] + _bounds(trial)[end] for trial in trials) + FINISH_S
        for end in (0, 1)
    )
    return TimeEstimate(least_s, most_s, starts)


def _bounds(request: StepsRequest) -> tuple[float, float]:
    """The least and the most seconds of a trial."""
    measure, blocks = request.measure, len(request.variants)
    least_s, most_s = SCRIPT_S if isinstance(request.config.workload, ScriptSpec) else (SET_UP_S, 0.0)
    rounds_s = min(measure.min_rounds * blocks * BLOCK_S[request.config.device], measure.max_seconds)
    if measure.steps is not None:  # as long as so many steps take
        return least_s, measure.timeout_seconds
    return least_s + rounds_s, most_s + measure.max_seconds / ROUNDS_SHARE
