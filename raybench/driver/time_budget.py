"""The time of a run, and what trials are expected to take, learned from those that it has seen."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import monotonic

from raybench.analysis.scaling import scaling
from raybench.analysis.stats.stopping import LEAST_MEASURED
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, TrainingRequest, TrialRequest
from raybench.records.results import StepsResult

# Of a trial's time, until one was seen; the rest is set-up, warm-up and what is measured outside the rounds.
ROUNDS_SHARE = 0.7
# Of rounds: blocks shrink to fit the fewest rounds into the time, and shorter ones than these leave say
# nothing. With less time than that for each trial some are left out.
LEAST_ROUNDS_S = 2.0
LEAST_GRACE_S = 10.0  # past the time budget, for a trial of which nothing is expected: to set up


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
        stepped = [scaling(each) for each in alike if each.steps is not None]
        if not stepped or self.epoch_samples is None:
            return 0.0
        epochs, samples = request.training.epochs, self.epoch_samples
        return min(each.mean_step_s.value * epochs * samples / each.samples for each in stepped)

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
