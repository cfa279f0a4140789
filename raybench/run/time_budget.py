"""The time of a run: what trials are expected to take, what is left for them, whether the next one fits.

``TimeBudget`` learns from the trials that it sees; ``Forecast`` divides what is left among all that is still
to be measured; ``estimate`` bounds a study before anything is started.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING

from raybench.analysis import choice
from raybench.analysis.cost import epochs_time
from raybench.analysis.reference import known_buckets
from raybench.analysis.stats.stopping import LEAST_MEASURED
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, StepsRole, StudyRequest, TrainingRequest, TrialRequest
from raybench.records.results import StepsResult
from raybench.run.ledger import Ledger
from raybench.spec.knobs import Setting

if TYPE_CHECKING:
    from raybench.run.in_flight import InFlight

# Of a trial's time, until one was seen; the rest is set-up, warm-up and what is measured outside the rounds.
ROUNDS_SHARE = 0.7
# Of rounds: blocks shrink to fit ten into the time, and shorter ones than these leave say nothing. With less
# time than that for each trial some are left out.
LEAST_ROUNDS_S = 2.0
ALONE = 0.45  # a trial on one device, in trials on several
# What a trial of one role costs in trials of another, until one of its own was seen: a trial of the curve
# has all variants, a confirmation has two synchronised ones, and a search may ask for wider intervals. As in
# the default study on two cores: 1.6 to 2.6, 0.9; one device 0.4 to 0.5.
COST_IN_SEARCHES: dict[StepsRole, float] = {
    "search": 1.0,
    "scaling": 2.4,
    "confirmation": 1.0,
    "verification": 1.0,
}


# The default's trial of a search, by which buckets are predicted, in those of other suggestions.
COST_OF_PREDICTING = 1.7

MOST_OVERHEAD = 0.9  # of a trial's time
LEAST_GRACE_S = 10.0  # past the time budget, for a trial of which nothing is expected: to set up
UNKNOWN_BEST = 0.5  # of the default's curve, for that of a better setting that is not found yet
RESERVED = 0.85  # of what the parts after the search would take at their full length

# As measured on two cores: Ray and a worker group until its first trial, ending both and the report, and
# processes of a trial's own.
START_S = (10.0, 25.0)
FINISH_S = 11.0
OWN_PROCESSES_S = (12.0, 25.0)
# At least, of a block of steps, as the devices ask for it; less where ten rounds do not fit into max_seconds.
BLOCK_S = {"cpu": 0.15, "cuda": 0.3}
SET_UP_S = 0.5  # at least, of a trial: its models, its first steps


@dataclass(frozen=True)
class _Seen:
    """How long a trial of steps took."""

    request: StepsRequest
    seconds: float
    overhead_s: float  # of these: not of its rounds
    is_first: bool  # of its worker group: what is kept or compiled for all of them it has made
    least_rounds_s: float  # its rounds can hardly be shorter

    @property
    def is_alone(self) -> bool:
        """Whether it ran on one device."""
        return self.request.config.world_size == 1

    def overhead_share(self, most_s: float) -> float:
        """Of its time what is not of its rounds, had that been ``most_s`` at most."""
        longer_s = max(self.overhead_s - most_s, 0.0)
        return (self.overhead_s - longer_s) / (self.seconds - longer_s)


@dataclass
class TimeBudget:
    """The clock of a run, and what trials are expected to take from those that it has seen."""

    deadline: float | None = None  # of ``monotonic``: when the last trial must be done; None: no limit
    epoch_samples: float | None = None  # of an epoch, evaluation included; None: not known beforehand
    starts_s: list[float] = field(default_factory=list)  # what each worker group took to start
    each_processes_s: list[float] = field(
        default_factory=list
    )  # what each trial took to start and end its own
    _seen: list[_Seen] = field(default_factory=list)
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
        """Whether a trial was seen."""
        return bool(self._seen)

    def has(self, seconds: float) -> bool:
        """Whether there is time for that."""
        return self.deadline is None or monotonic() + seconds <= self.deadline

    def took(
        self, request: StepsRequest, wall_time_s: float, steps: StepsResult, max_seconds: float, group: int
    ) -> None:
        """Learn how long a complete trial of ``group`` took, as if its rounds had had ``max_seconds``."""
        was_cut = steps.stopped_by == "max_seconds"
        seconds = wall_time_s + (max_seconds - request.measure.max_seconds if was_cut else 0.0)
        overhead_s = max(wall_time_s - steps.measure_s, 0.0)
        rounds = len(steps.rounds)
        in_haste = rounds < request.measure.min_rounds  # steps are long, blocks as short as they get
        least_s = LEAST_MEASURED * steps.measure_s / rounds if in_haste else LEAST_ROUNDS_S
        if request.role == "search" and "local" in request.variants:
            seconds, overhead_s = seconds / COST_OF_PREDICTING, overhead_s / COST_OF_PREDICTING
        is_first = group not in self._groups
        self._groups.add(group)
        self._seen.append(_Seen(request, seconds, overhead_s, is_first, least_s))

    def cost(
        self, role: StepsRole, world_size: int, max_seconds: float, settings: Sequence[Setting] = ()
    ) -> float:
        """Expected seconds of a trial of ``settings`` (none: not known yet), from those seen.

        What its settings took in the search, times what a trial of its kind takes of that. ``max_seconds``:
        after which the rounds of any trial end; taken where nothing was seen.
        """
        alone, searched_s = world_size == 1, self._searched(settings)
        alike = self._like(role, alone=alone)
        if searched_s is None:
            if alike:
                return fmean(seen.seconds for seen in alike)
            curve = self._like("scaling", alone=False)
            most_s = fmean(seen.seconds for seen in curve) if curve else max_seconds
            return most_s * (ALONE if alone else 1.0)
        if not alike:
            return searched_s * (ALONE if alone else COST_IN_SEARCHES[role])
        if role == "search":
            return searched_s
        times = [seen.seconds / (self._searched(seen.request.settings) or 1.0) for seen in alike]
        return searched_s * fmean(times)

    def _like(self, role: StepsRole, *, alone: bool) -> list[_Seen]:
        return [each for each in self._seen if each.request.role == role and each.is_alone == alone]

    def fit(
        self, request: StepsRequest, expected_s: float, steps_s: float, fixed_s: float = 0.0
    ) -> StepsRequest | None:
        """``request`` with so much time for its rounds that all that follows it gets its share.

        Still to be measured are trials of steps that are expected to take ``steps_s``, ``expected_s`` of it
        this one, and ``fixed_s`` of what cannot be cut short. None where there is not time for all of it.
        """
        left_s = self.left_s
        if left_s is None or steps_s + fixed_s <= left_s:
            return request
        share = (left_s - fixed_s) / steps_s
        if share < self._least_share(request, expected_s):
            return None
        return self._cut(request, expected_s, share)

    def shortest(
        self, request: StepsRequest, expected_s: float, after_s: float, fixed_s: float = 0.0
    ) -> StepsRequest | None:
        """``request`` with the least time for its rounds in which it says something; None without that.

        After it come trials of steps that are expected to take ``after_s``, cut as it is, and ``fixed_s`` of
        what cannot be cut short.
        """
        share = self._least_share(request, expected_s)
        if not self.has(share * (expected_s + after_s) + fixed_s):
            return None
        return self._cut(request, expected_s, share)

    def _cut(self, request: StepsRequest, expected_s: float, share: float) -> StepsRequest:
        """``request`` in this share of the time that it is expected to take: its rounds are cut."""
        rounds_s = max(expected_s * (share - self._overhead_share), LEAST_ROUNDS_S)
        cut = {"max_seconds": min(rounds_s, request.measure.max_seconds)}
        measure = request.measure.model_copy(update=cut)
        return request.model_copy(update={"measure": measure})

    @property
    def _overhead_share(self) -> float:
        """Of a trial's time, what is not of its rounds; without what a group's first trial takes longer."""
        if not self._seen:
            return 1 - ROUNDS_SHARE
        most_s = max((seen.overhead_s for seen in self._seen if not seen.is_first), default=math.inf)
        return fmean(min(seen.overhead_share(most_s), MOST_OVERHEAD) for seen in self._seen)

    def _least_share(self, request: StepsRequest, expected_s: float) -> float:
        """Of the time that it is expected to take, without which a trial says nothing."""
        if request.measure.steps is not None or not expected_s:  # a fixed number of rounds cannot be cut
            return 1.0
        rounds_s = self._least_rounds_s(request)
        return min(self._overhead_share + rounds_s / expected_s, 1.0)

    def _least_rounds_s(self, request: StepsRequest) -> float:
        """As the last trial of the same settings showed; a slow setting says nothing of a fast one."""
        is_alone, settings = request.config.world_size == 1, set(request.settings)
        for seen in reversed(self._seen):
            if seen.is_alone == is_alone and settings.intersection(seen.request.settings):
                return seen.least_rounds_s
        return LEAST_ROUNDS_S

    def _searched(self, settings: Sequence[Setting]) -> float | None:
        """Mean seconds of the search's trials of ``settings``, or of all of them; None without any."""
        every = [seen for seen in self._seen if seen.request.role == "search"]
        own = [seen for seen in every if seen.request.config.setting in settings]
        return fmean(seen.seconds for seen in own or every) if every else None

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
        return min(epochs_time(each, epochs * samples, epochs).value for each in stepped)

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
    in_flight: InFlight
    verify: bool  # whether proposed changes are tested in the end

    @property
    def _plan(self) -> Plan:
        return self.ledger.plan

    def cost_s(self, role: StepsRole, world_size: int, *settings: Setting) -> float:
        """Expected seconds of a trial of steps; ``settings``: what it measures, where that is known."""
        rounds_s = self.budget.cost(role, world_size, self._plan.study.measure.max_seconds, settings)
        return rounds_s + self.budget.processes_s

    def cost_of(self, request: StudyRequest) -> float:
        """Expected seconds of any trial; 0: not known."""
        if request.kind == "training":
            epochs_s = self.budget.training_cost(request, self.ledger.records())
            return epochs_s + self.budget.processes_s if epochs_s else 0.0
        settings = request.settings if request.kind == "steps" else ()
        return self.cost_s(request.role, request.config.world_size, *settings)

    def fit(
        self, rest: Sequence[StepsRequest], *, fixed_s: float, steps_s: float = 0.0
    ) -> StepsRequest | None:
        """The first of ``rest`` with the time for its rounds that it may take; see ``TimeBudget.fit``.

        After them come trials of steps that are expected to take ``steps_s``, and ``fixed_s`` of what cannot
        be cut short; processes of the trials' own are known here.
        """
        asked = [*rest, *(each for each in self.in_flight.requests if each.kind == "steps")]
        processes_s = self.budget.processes_s
        costs_s = [self.cost_of(each) - processes_s for each in asked]
        steps_s += self._side_by_side_s(costs_s, asked)
        fixed_s += self._side_by_side_s([processes_s] * len(asked), asked)
        return self.budget.fit(rest[0], costs_s[0], steps_s, fixed_s)

    def fit_one(self, request: StepsRequest) -> StepsRequest | None:
        """``request`` with the time that its processes' start, the training and a verification leave it."""
        fixed_s = self._training_reserve_s() + self.in_flight.start_cost_s(request)
        return self.fit([request], fixed_s=fixed_s, steps_s=self._verification_cost_s())

    def fit_curve(self, rest: Sequence[StepsRequest], after_s: float) -> StepsRequest | None:
        """The first of ``rest``, the open trials of curves; where there is no time for all, at its shortest.

        The time is divided with trials of steps that take ``after_s``, the confirmation and the training.
        """
        first, last = rest[0], rest[-1]
        if self.budget.left_s is None:
            return first
        confirmation_s, training_s = self._confirmation_cost_s(), self._training_reserve_s()
        start_s = self.in_flight.start_cost_s(first)
        starts_s = start_s + (last.start - first.start) * self.budget.start_s
        in_time = self.fit(rest, fixed_s=starts_s + training_s, steps_s=confirmation_s + after_s)
        if in_time is not None:
            return in_time
        return self._shortest(first, self.cost_of(first), start_s + training_s, confirmation_s)

    def fit_suggestion(self, number: int) -> StepsRequest | None:
        """The request of a suggestion, with the time for its rounds; ``number`` are still to be made.

        Time is kept for what comes after the search, cut as short as this one. None where there is none.
        """
        request, processes_s = self._plan.search(self._plan.default()), self.budget.processes_s
        # the first one shows what trials cost: until then the reserve is the worst case of each
        reserve_s = self.search_reserve_s() if self.budget.knows else 0.0
        expected_s = self.cost_s("search", self._plan.target) - processes_s
        left = [request] * number
        steps_s = self._side_by_side_s([expected_s] * number, left) + reserve_s
        fixed_s = self._side_by_side_s([processes_s] * number, left) + self._training_reserve_s()
        in_time = self.budget.fit(request, expected_s, steps_s, fixed_s)
        if in_time is not None:
            return in_time
        return self._shortest(request, expected_s + processes_s, self._training_reserve_s(), reserve_s)

    def _shortest(
        self, request: StepsRequest, cost_s: float, fixed_s: float, after_s: float
    ) -> StepsRequest | None:
        processes_s = self.budget.processes_s
        if processes_s:  # of what comes after it too, and they cannot be cut
            fixed_s, after_s = fixed_s + after_s, 0.0
        return self.budget.shortest(request, cost_s - processes_s, after_s, fixed_s + processes_s)

    def _side_by_side_s(self, costs_s: Sequence[float], requests: Sequence[StudyRequest]) -> float:
        """Seconds that ``requests`` take, of which each takes its part of ``costs_s``."""
        at_once = min((self.in_flight.capacity(each) for each in requests), default=1)
        return max(sum(costs_s) / at_once, max(costs_s, default=0.0))

    def _training_reserve_s(self) -> float:
        """Seconds to keep back for training while steps are measured: what it needs, half of what is left.

        More would leave nothing measured where an epoch alone takes longer than the budget.
        """
        left_s = self.budget.left_s
        if left_s is None:
            return 0.0
        requests = training_requests(self._plan, self.ledger.records())
        open_ = [each for each in requests if self.ledger.is_open(each)]
        needed_s = self._side_by_side_s([self.cost_of(each) for each in open_], open_)
        return min(needed_s, left_s / 2)

    def search_reserve_s(self) -> float:
        """Seconds to keep back for what comes after the search: the curves and the confirmation.

        Of the default and of one other setting at least, as a better one may still be found: it is faster. As
        much as they need with somewhat shorter rounds: what is left in the end is divided among them.
        """
        starts, default, best = self._plan.study.measure.starts, self._default(), self._best()
        curve = self._plan.curve(self._plan.default(), in_answer=True)
        # of the default's curve what is still to be measured; all of it while its batch is not known
        open_ = [self.cost_of(each) for each in curve if self.ledger.is_open(each)]
        curves_s = sum(open_) if default else self._curve_s()
        curves_s += sum(self._curve_s(each) for each in best or ())
        confirmation_s = self._confirmation_cost_s()
        if not best:
            curves_s += UNKNOWN_BEST * self._curve_s(*default)
            confirmation_s = self.cost_s("confirmation", self._plan.target, *default)
            confirmation_s += self._verification_cost_s()
        curves_s /= min(map(self.in_flight.capacity, curve), default=1)
        return RESERVED * (curves_s + confirmation_s) + (starts - 1) * self.budget.start_s

    def _curve_s(self, *settings: Setting) -> float:
        """Expected seconds of the trials of one curve."""
        sizes, starts = self._plan.curve_sizes, self._plan.study.measure.starts
        return starts * sum(self.cost_s("scaling", size, *settings) for size in sizes)

    def _confirmation_cost_s(self) -> float:
        """Expected seconds of the confirmations: none where the default is the best so far.

        One verification with them, where the diagnosis is to be verified.
        """
        target, default, best = self._plan.target, self._default(), self._best()
        if best is None:
            return self.cost_s("confirmation", target) + self._verification_cost_s()
        confirmed = sum(self.cost_s("confirmation", target, each, *default) for each in best)
        return confirmed + self._verification_cost_s()

    def _verification_cost_s(self) -> float:
        """Expected seconds of the verification that time is kept for: of the first finding's change."""
        return self.cost_s("verification", self._plan.target, *self._default()) if self.verify else 0.0

    def _default(self) -> tuple[Setting, ...]:
        """The default's setting; none while what "max" stands for is not known."""
        is_unknown = self._plan.study.knobs.has_max and not self._plan.fits
        return () if is_unknown else (self._plan.default().setting,)

    def _best(self) -> list[Setting] | None:
        """The best suggestions but for the default: what is confirmed. None: nothing is searched."""
        if self._plan.study.search.method != "optuna":
            return None
        study = self.ledger.study
        best = [each.config for each in self.ledger.best_searched()]
        return [config.setting for config in best if not choice.is_default(study, config)]

    def left_s(self, request: StudyRequest, trials: int) -> float | None:
        """Seconds until so many trials like ``request`` are done, and what follows them; None: not known."""
        if request.kind != "training" and not self.budget.knows:
            return None
        left_s = trials * self.cost_of(request) / self.in_flight.capacity(request)
        if request.kind == "training":
            return left_s or None
        if request.role == "search":
            left_s += self.search_reserve_s()
        elif request.role == "scaling":
            left_s += (self._plan.study.measure.starts - 1 - request.start) * self.budget.start_s
        return left_s if self.budget.left_s is None else min(left_s, self.budget.left_s)


# --- before anything is started


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds from the command to the report, between bounds; without trainings and probes of "max"."""

    least_s: float
    most_s: float
    num_trials: int  # of steps, the confirmation among them
    num_starts: int  # of worker groups; with ``own_processes`` one a trial
    until_first_s: tuple[float, float]  # until the workers of the first trial have started, between bounds


def estimate(plan: Plan, *, own_processes: bool = False, known: Sequence[TrialRecord] = ()) -> TimeEstimate:
    """Of the trials of steps: the least rounds of the shortest blocks, and all the time that rounds may have.

    What is found best is not known yet: of a search the second curve is taken to be as long as the default's.
    ``known``: of a run that goes on, what it does not measure again.
    """
    trials = _trials(plan, known)
    starts = 1 if own_processes else len(plan.environments()) * plan.study.measure.starts
    each_s = OWN_PROCESSES_S if own_processes else (0.0, 0.0)
    least_s, most_s = (
        START_S[end] * starts + math.fsum(each_s[end] + _bounds(trial)[end] for trial in trials) + FINISH_S
        for end in (0, 1)
    )
    first_s = (START_S[0] + each_s[0], START_S[1] + each_s[1])
    return TimeEstimate(least_s, most_s, len(trials), starts, first_s)


def open_trials(plan: Plan, known: Sequence[TrialRecord]) -> Callable[[StudyRequest], bool]:
    """Whether a trial is still to be measured: neither it nor one of equal buckets is among ``known``."""
    ids, buckets = {record.trial_id for record in known}, known_buckets(plan.study, known)

    def is_open(request: StudyRequest) -> bool:
        other = buckets.stand_in(request)
        return ids.isdisjoint({request.trial_id, (other or request).trial_id})

    return is_open


def num_known(known: Iterable[TrialRecord], role: StepsRole) -> int:
    """How many trials of ``role`` there are."""
    return sum(record.request.role == role for record in known)


def _trials(plan: Plan, known: Sequence[TrialRecord]) -> Sequence[StepsRequest]:
    default, is_open = plan.default(), open_trials(plan, known)
    confirmation = [plan.confirmation(default, default)] * (num_known(known, "confirmation") == 0)
    if plan.study.search.method != "optuna":
        requests = [trial.request for trial in plan.trials() if is_open(trial.request)]
        return [*(each for each in requests if each.kind == "steps"), *confirmation]
    number = min(plan.study.search.trials, plan.study.knobs.num_combinations * len(plan.environments()))
    curve = plan.curve(default)
    searched = [plan.search(default)] * (number - num_known(known, "search"))
    of_default = list(filter(is_open, curve))
    known_of_best = num_known(known, "scaling") - (len(curve) - len(of_default))
    return [*searched, *of_default, *curve[max(known_of_best, 0) :], *confirmation]


def _bounds(request: StepsRequest) -> tuple[float, float]:
    """The least and the most seconds of a trial."""
    measure, blocks = request.measure, len(request.variants)
    rounds_s = min(measure.min_rounds * blocks * BLOCK_S[request.config.device], measure.max_seconds)
    if measure.steps is not None:  # as long as so many steps take
        return SET_UP_S, measure.timeout_seconds
    return SET_UP_S + rounds_s, measure.max_seconds / ROUNDS_SHARE
