"""Whether the next trial fits into the time, and how long a study takes.

``Forecast`` divides what is left among all that is still to be measured; ``estimate`` bounds a study before
anything is started.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from raybench.driver.groups import Groups
from raybench.driver.ledger import Ledger
from raybench.driver.time_budget import ROUNDS_SHARE, Cost, TimeBudget
from raybench.plan.notes import Stage, num_suggestions, open_visits
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.requests import StepsRequest, StudyRequest
from raybench.spec.workloads import ScriptSpec

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
            groups.add(queue[place].planned_group)
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
            changed = plan.verification(config, default.setting)
            left_s -= self.budget.cost(changed).least_s
        return left_s - self.groups.start_cost_s(request)

    def _all(self, requests: Iterable[StepsRequest]) -> Cost:
        return sum(map(self.budget.cost, requests), Cost())

    def _starts(self, requests: Sequence[StepsRequest]) -> Cost:
        """Worker groups that are to be started for ``requests``, the first of which has its group."""
        return Cost(overhead_s=(len({each.planned_group for each in requests}) - 1) * self.budget.start_s)

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
